#include "tools/run/bill.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tools/base/command.h"
#include "tools/base/monitor_client.h"
#include "tools/base/output.h"
#include "tools/report/tables.h"
#include "tools/run/supervise.h"

namespace switchyard::tools {
namespace {

using std::chrono::milliseconds;

// A job outlives its last process by three seconds.
constexpr milliseconds kEndsWithin{6000};
constexpr milliseconds kAskEvery{50};

void tell_bill(const std::string& socket, const std::string& job) {
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  auto monitor = MonitorClient::connect(socket);
  if (!monitor) return complain(fmt::format("no bill: {}", monitor.error().text));
  for (;;) {
    const auto reply = monitor->ask({{"op", "report"}, {"by", "job"}, {"job", job}});
    if (!reply) return complain(fmt::format("no bill: {}", reply.error().text));
    const auto& rows = list_of(*reply, "rows");
    const bool ended = !rows.empty() && !text_of(rows.front(), "exit", "").empty();
    const bool late = std::chrono::steady_clock::now() >= until;
    if (rows.empty() && late) return complain("no bill: the history does not know the job");
    if (ended || late) {
      return complain(bill_text(rows.front()) + (ended ? "" : "; it has not ended yet"));
    }
    std::this_thread::sleep_for(kAskEvery);
  }
}

}  // namespace

int run_and_tell_bill(const std::function<int(int tells)>& run) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) {
    return fail({kRunRefused, fmt::format("--report needs a pipe, and there is none ({}): leave it "
                                          "out",
                                          std::strerror(errno))});
  }
  const auto status = supervise([&] { return run(pipe[1]); });
  if (!status) return fail(status.error());
  ::close(pipe[1]);
  char text[512];
  const ssize_t bytes = ::read(pipe[0], text, sizeof(text));
  const std::string told(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  const std::size_t blank = told.find(' ');
  if (blank != std::string::npos) tell_bill(told.substr(blank + 1), told.substr(0, blank));
  end_like(*status);
}

void tell_job(int tells, const std::string& job, const std::string& socket) {
  ::dprintf(tells, "%s %s", job.c_str(), socket.c_str());
}

}  // namespace switchyard::tools
