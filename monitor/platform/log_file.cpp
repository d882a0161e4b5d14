#include "monitor/platform/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

bool same_file(int a, int b) {
  struct stat one {};
  struct stat other {};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LogFile(std::string path, Fd fd, std::uint64_t bytes, std::uint64_t most)
      : path_(std::move(path)), fd_(std::move(fd)), bytes_(bytes), most_(most) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    if (bytes_ > 0 && bytes_ + text.size() > most_) begin_anew();
    bytes_ += text.size();
    // A full disk loses lines and nothing else.
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), text.data(), text.size());
  }
  void flush_() override {}

 private:
  void begin_anew() {
    bytes_ = 0;
    const std::string old = path_ + ".old";
    Fd fresh;
    if (::rename(path_.c_str(), old.c_str()) == 0) {
      fresh = Fd(::open(path_.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    }
    if (!fresh) {
      [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), 0);
      return;
    }
    for (const int stream : {1, 2}) {
      if (same_file(stream, fd_.get())) ::dup2(fresh.get(), stream);
    }
    fd_ = std::move(fresh);
  }

  std::string path_;
  Fd fd_;
  std::uint64_t bytes_;
  std::uint64_t most_;
};

}  // namespace

std::shared_ptr<spdlog::sinks::sink> open_log_file(const std::string& path, std::uint64_t most,
                                                   std::string& why) {
  // Neither a fifo nor a terminal keeps us waiting.
  Fd fd(::open(path.c_str(),
               O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
               0600));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    why = std::strerror(errno);
    return nullptr;
  }
  const bool regular = S_ISREG(info.st_mode);
  if (!regular && !S_ISCHR(info.st_mode)) {
    why = "it is no file";
    return nullptr;
  }
  if (regular && (info.st_uid != ::geteuid() || info.st_nlink != 1)) {
    why = "it belongs to " + user_name(info.st_uid) + ", or has another name";
    return nullptr;
  }
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  return std::make_shared<LogFile>(path, std::move(fd), bytes, regular ? most : ~0ull >> 1);
}

}  // namespace switchyard::monitor
