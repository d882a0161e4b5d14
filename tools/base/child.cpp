#include "tools/base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>

namespace switchyard::tools {
namespace {

void close_one(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      read = ends[0];
      write = ends[1];
    }
  }
};

// Takes what is there; false when the other side has closed.
bool take(int& fd, std::string& text) {
  char buffer[4096];
  const ssize_t got = ::read(fd, buffer, sizeof(buffer));
  if (got > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  close_one(fd);
  return false;
}

}  // namespace

Child Child::start(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& changes) {
  Pipe in;
  Pipe out;
  Pipe err;
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // Where a parent left it ignored, the kernel throws the child's status away.
  ::signal(SIGCHLD, SIG_DFL);
  Child child;
  child.pid_ = ::fork();
  if (child.pid_ == 0) {
    ::dup2(in.read, 0);
    ::dup2(out.write, 1);
    ::dup2(err.write, 2);
    for (const auto& [name, value] : changes) {
      if (value.empty()) {
        ::unsetenv(name.c_str());
      } else {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
    }
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  close_one(in.read);
  close_one(out.write);
  close_one(err.write);
  child.in_ = in.write;
  child.out_ = out.read;
  child.err_ = err.read;
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      out_text_(std::move(other.out_text_)),
      err_text_(std::move(other.err_text_)) {}

Child::~Child() {
  close_all();
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Child::close_all() {
  close_one(in_);
  close_one(out_);
  close_one(err_);
}

bool Child::write_line(const std::string& text) {
  const std::string line = text + "\n";
  // A child that died must not take us along.
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  const bool written =
      in_ >= 0 && ::write(in_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  ::sigaction(SIGPIPE, &before, nullptr);
  return written;
}

bool Child::pump(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0 || (out_ < 0 && err_ < 0)) return false;
  pollfd entries[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};  // poll skips negative ones
  const int ready = ::poll(entries, 2, static_cast<int>(std::min<long>(left, 60000)));
  if (ready <= 0) return ready < 0 && errno == EINTR;
  if (entries[0].revents != 0) take(out_, out_text_);
  if (entries[1].revents != 0) take(err_, err_text_);
  return true;
}

bool Child::read_line(std::string& line, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::size_t end = 0;
  while ((end = out_text_.find('\n')) == std::string::npos) {
    if (out_ < 0 || !pump(deadline)) return false;
  }
  line = out_text_.substr(0, end);
  out_text_.erase(0, end + 1);
  return true;
}

Child::End Child::finish(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  close_one(in_);
  while (pump(deadline)) {
  }
  End end;
  int status = 0;
  pid_t got = 0;
  while (pid_ > 0 && (got = ::waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (got == pid_ && pid_ > 0) {
    end.exited = true;
    end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pid_ = -1;
  }
  end.out = std::move(out_text_);
  end.err = std::move(err_text_);
  return end;
}

}  // namespace switchyard::tools
