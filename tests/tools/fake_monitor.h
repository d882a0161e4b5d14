// A monitor for tests of the tools: it listens on a socket and answers as the test says. And a
// command that asks it.
//
// Threading: one thread of its own; `answer` is called there. The destructor ends it.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tools/base/command.h"

namespace switchyard::tools {

class FakeMonitor {
 public:
  using Answer = std::function<nlohmann::json(const nlohmann::json&)>;
  using Raw = std::function<std::string(const std::string& header_and_body)>;

  // Answers each request with what `answer` returns.
  static FakeMonitor answering(Answer answer);
  // Answers the first request with these bytes and closes; empty: stays silent.
  static FakeMonitor raw(Raw raw);

  FakeMonitor(FakeMonitor&&) = delete;
  ~FakeMonitor();

  const std::string& socket() const { return path_; }
  int listener() const { return listener_; }

 private:
  FakeMonitor(Answer answer, Raw raw);
  void serve();
  void talk(int fd);

  Answer answer_;
  Raw raw_;
  std::string folder_;
  std::string path_;
  int listener_ = -1;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// How a command ended, and what it printed.
struct CommandEnd {
  int code = 0;
  std::string out, err;
};

// Runs `words`, one of `commands`, which asks the monitor at `socket`.
CommandEnd run_command(const std::string& socket,
                       const std::vector<void (*)(CommandLine&)>& commands,
                       std::vector<std::string> words);

}  // namespace switchyard::tools
