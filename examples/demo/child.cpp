#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace demo {

long now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000L + time.tv_nsec;
}

Child::Child(const std::vector<std::string>& command, bool quiet) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    if (quiet) ::dup2(::open("/dev/null", O_WRONLY), 2);
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    std::fprintf(stderr, "demo: cannot run %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

Child::~Child() {
  for (const int fd : {to_, from_}) {
    if (fd >= 0) ::close(fd);
  }
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    wait();
  }
}

int Child::wait() {
  int status = -1;
  if (pid_ <= 0) return status;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

bool Child::succeeded() {
  const int status = wait();
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool Child::take_line(std::string& line) {
  const std::size_t end = read_.find('\n');
  if (end == std::string::npos) return false;
  line = read_.substr(0, end);
  read_.erase(0, end + 1);
  return true;
}

bool Child::read_more() {
  char bytes[4096];
  const ssize_t got = from_ < 0 ? 0 : ::read(from_, bytes, sizeof(bytes));
  if (got <= 0) return false;
  read_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

bool Child::read_line(std::string& line) {
  while (!take_line(line)) {
    if (!read_more()) return false;
  }
  return true;
}

int Child::lines_within(double seconds) {
  const long end = now() + static_cast<long>(seconds * 1e9);
  int lines = 0;
  for (std::string line;;) {
    while (take_line(line)) ++lines;
    const long left_ms = (end - now()) / 1'000'000;
    pollfd file{from_, POLLIN, 0};
    if (left_ms <= 0 || ::poll(&file, 1, static_cast<int>(left_ms)) <= 0) return lines;
    if (!read_more()) return lines;
  }
}

std::string Child::ready() {
  std::string line;
  return read_line(line) && line.rfind("ready ", 0) == 0 ? line.substr(6) : "";
}

void Child::go(long begin, long end) { ::dprintf(to_, "go %ld %ld\n", begin, end); }

std::vector<double> Child::numbers() {
  std::vector<double> values;
  for (std::string line; read_line(line);) values.push_back(std::atof(line.c_str()));
  return values;
}

}  // namespace demo
