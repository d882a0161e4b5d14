#include "monitor/platform/service_manager.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "switchyard/fd.h"

namespace switchyard::monitor {

std::uint64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  std::uint64_t value = 0;
  if (text == nullptr) return 0;
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, value);
  return read.ec == std::errc() && read.ptr == end ? value : 0;
}

ServiceManager::ServiceManager() {
  if (const char* socket = std::getenv("NOTIFY_SOCKET")) socket_ = socket;
  const std::uint64_t pid = number_in("WATCHDOG_PID");
  const std::uint64_t span = number_in("WATCHDOG_USEC");
  constexpr std::uint64_t kLongest = 1'000'000'000'000;  // a day or two; longer is none
  if (span < kLongest && (pid == 0 || pid == static_cast<std::uint64_t>(::getpid()))) {
    every_ = std::chrono::microseconds(span / 2);
  }
}

void ServiceManager::lives(Time now) {
  if (every_ == Time{0} || (told_ != Time{0} && now - told_ < every_)) return;
  told_ = now;
  tell("WATCHDOG=1");
}

void ServiceManager::tell(std::string_view words) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool abstract = !socket_.empty() && socket_[0] == '@';
  if (socket_.size() < 2 || socket_.size() >= sizeof(address.sun_path)) return;
  if (!abstract && socket_[0] != '/') return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (abstract) address.sun_path[0] = '\0';
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size() + (abstract ? 0 : 1));
  const Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  [[maybe_unused]] const ssize_t sent =
      ::sendto(fd.get(), words.data(), words.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace switchyard::monitor
