#include "tools/run/island/daemon.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "tools/base/child.h"

namespace switchyard::tools::island {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswersWithin{10'000};
constexpr milliseconds kEndsWithin{10'000};
constexpr milliseconds kLooksEvery{50};

}  // namespace

std::optional<std::string> ask(const std::string& pipe, const std::string& command) {
  Child control = Child::start({kControlProgram}, {{kPipeVariable, pipe}});
  if (!control.write_line(command)) return std::nullopt;
  const Child::End end = control.finish(kAnswersWithin);
  if (!end.exited || end.status != 0) return std::nullopt;
  return end.out;
}

bool has_clients(const std::string& pipe) {
  std::istringstream servers(ask(pipe, "get_server_list").value_or(""));
  for (std::string server; servers >> server;) {
    // PIDs; of a server that has just ended "Server 17 not found".
    std::istringstream clients(ask(pipe, "get_client_list " + server).value_or(""));
    if (pid_t pid = 0; clients >> pid) return true;
  }
  return false;
}

void terminate_client(const std::string& pipe, int pid) {
  std::istringstream servers(ask(pipe, "get_server_list").value_or(""));
  for (std::string server; servers >> server;) {
    ask(pipe, fmt::format("terminate_client {} {}", server, pid));
  }
}

std::optional<Error> start(const std::vector<std::pair<std::string, std::string>>& environment) {
  const Child::End end = Child::start({kControlProgram, "-d"}, environment).finish(kAnswersWithin);
  if (end.exited && end.status == 0) return std::nullopt;
  if (end.status == 127) {
    return Error{kRunRefused,
                 fmt::format("--co-run needs {}, which comes with the driver (Ubuntu: "
                             "nvidia-compute-utils, Debian: nvidia-cuda-mps): install it, or leave "
                             "--co-run out",
                             kControlProgram)};
  }
  return Error{kRunRefused,
               fmt::format("{} -d did not start: {}", kControlProgram,
                           end.exited ? end.err.substr(0, end.err.find('\n')) : "no answer")};
}

void quit(const std::string& pipe) {
  ask(pipe, "quit");
  const auto deadline = std::chrono::steady_clock::now() + kEndsWithin;
  while (std::chrono::steady_clock::now() < deadline && ask(pipe, "get_server_list")) {
    std::this_thread::sleep_for(kLooksEvery);
  }
}

}  // namespace switchyard::tools::island
