#include "tools/run/bill.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/base/command.h"
#include "tools/base/monitor_client.h"
#include "tools/report/bill.h"
#include "tools/run/supervise.h"

namespace switchyard::tools {
namespace {

void tell_bill(const std::string& socket, const std::string& job) {
  auto monitor = MonitorClient::connect(socket);
  if (!monitor) return complain(fmt::format("no bill: {}", monitor.error().text));
  const auto rows = await_bills(*monitor, {{"op", "report"}, {"by", "job"}, {"job", job}});
  if (!rows) return complain(fmt::format("no bill: {}", rows.error().text));
  if (rows->empty()) return complain("no bill: the history does not know the job");
  complain(ended_bill_text(rows->front()));
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
