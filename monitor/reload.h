// Reads the file of settings anew while the monitor runs, when SIGHUP asks for it.
//
// Concept. The file is read and its names are looked up on a thread that nobody waits for. The
// loop puts the settings into force. A file with an error changes nothing. The log says what
// became of it, and so does an event. Signals that come while one file is read make one more
// reading.
//
// Threading: the loop's one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "monitor/monitor.h"
#include "monitor/options.h"
#include "monitor/platform/asio.h"
#include "monitor/platform/background.h"

namespace switchyard::monitor {

class Reload {
 public:
  // Without a file nothing listens to SIGHUP. `options`: those that the monitor was started with.
  Reload(asio::io_context& io, Monitor& monitor, const Options& options);

 private:
  struct Found {
    std::optional<Options> options;
    std::vector<std::string> problems;
  };
  void await_signal();
  void await_file();
  void read();
  void apply(Found& found);
  void refused(const std::vector<std::string>& problems);
  void say(EventKind kind, const std::string& text);

  Monitor& monitor_;
  std::shared_ptr<const CommandLine> line_;
  std::string file_;
  asio::signal_set signal_;
  Background background_;
  asio::posix::stream_descriptor finished_;
  bool reads_ = false;
  bool again_ = false;
};

}  // namespace switchyard::monitor
