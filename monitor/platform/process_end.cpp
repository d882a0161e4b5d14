#include "monitor/platform/process_end.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>

#include "monitor/platform/process_stat.h"
#include "switchyard/pidfd.h"

namespace switchyard::monitor {
namespace {

// The kernel's pidfd_info, which headers before Linux 6.13 lack.
struct PidfdInfo {
  std::uint64_t mask, cgroup;
  std::uint32_t pid, tgid, ppid;
  std::array<std::uint32_t, 8> users;
  std::int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64, "the size is part of the request's number");
constexpr std::uint64_t kInfoExit = 1u << 3;

// While its parent has not asked for it.
std::optional<int> status_in_proc(int pidfd, pid_t pid) {
  const std::string file = fmt::format("/proc/{}/stat", pid);
  const std::string state = word_of_stat(file, kStatState);
  if (state != "Z" && state != "X") return std::nullopt;
  int status = 0;
  const std::string number = word_of_stat(file, kStatExit);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), status);
  if (error != std::errc()) return std::nullopt;
  // Without the right to trace the process, 0 stands there. Its namespaces take the same right.
  char unused[64];
  const std::string user = fmt::format("/proc/{}/ns/user", pid);
  if (::readlink(user.c_str(), unused, sizeof(unused)) < 0) return std::nullopt;
  // The number may be another process's by now.
  const bool same = signal_by(pidfd, 0);
  return same ? std::optional(status) : std::nullopt;
}

// Once its parent has asked for it.
std::optional<int> status_in_pidfd(int pidfd) {
  PidfdInfo info{};
  info.mask = kInfoExit;
  const bool told = ::ioctl(pidfd, _IOWR(0xff, 11, PidfdInfo), &info) == 0;
  return told && (info.mask & kInfoExit) != 0 ? std::optional(info.exit_code) : std::nullopt;
}

}  // namespace

std::optional<int> wait_status_of(int pidfd, pid_t pid) {
  if (pidfd < 0 || pid <= 0) return std::nullopt;
  const auto kept = status_in_proc(pidfd, pid);
  return kept ? kept : status_in_pidfd(pidfd);
}

ProcessEnd end_of(int wait_status) {
  ProcessEnd out;
  if (WIFSIGNALED(wait_status)) {
    out.signal = WTERMSIG(wait_status);
  } else {
    out.code = WEXITSTATUS(wait_status);
  }
  return out;
}

std::string end_text(int wait_status) {
  const ProcessEnd end = end_of(wait_status);
  return end.signal ? fmt::format("signal {}", *end.signal)
                    : fmt::format("exit code {}", *end.code);
}

ProcessEnd end_of_text(const std::string& text) {
  ProcessEnd out;
  int number = 0;
  if (std::sscanf(text.c_str(), "exit code %d", &number) == 1) out.code = number;
  if (std::sscanf(text.c_str(), "signal %d", &number) == 1) out.signal = number;
  return out;
}

}  // namespace switchyard::monitor
