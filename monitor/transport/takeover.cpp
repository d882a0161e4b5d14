#include "monitor/transport/takeover.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "monitor/platform/processes.h"
#include "switchyard/claim.h"
#include "switchyard/fd.h"
#include "switchyard/paths.h"

namespace switchyard::monitor {
namespace {

// A holder that was asked.
struct Asked {
  Fd claim;    // the connection to it; closed: it is waited for no longer
  Fd process;  // readable once it has ended
  std::string words;
  pid_t pid = 0;
};

// Nullopt: nobody there has to be asked.
std::optional<Asked> ask(const std::string& uuid) {
  sockaddr_un address{};
  const socklen_t length = claim_address(uuid, address);
  Asked out;
  out.claim = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.claim ||
      ::connect(out.claim.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return std::nullopt;
  }
  const auto holder = peer_of(out.claim.get());
  if (!holder || holder->uid == ::geteuid() || holder->pid <= 0) return std::nullopt;
  out.pid = holder->pid;
  bool dead = false;
  out.process = open_process(holder->pid, dead);
  const std::string_view request(kTakeOver);
  const ssize_t sent =
      ::send(out.claim.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (!out.process || sent != static_cast<ssize_t>(request.size())) return std::nullopt;
  spdlog::warn("asks the monitor of {} (pid {}) to hand over {}", user_name(holder->uid),
               holder->pid, uuid);
  return out;
}

bool agreed(const Asked& asked) { return asked.words.find(kHandsOver) != std::string::npos; }

// Reads what there is. Anybody may listen there, so the text is bounded.
void hear(Asked& asked) {
  char text[512];
  const ssize_t got = ::recv(asked.claim.get(), text, sizeof(text), MSG_DONTWAIT);
  if (got > 0 && asked.words.size() + static_cast<std::size_t>(got) <= 2 * sizeof(text)) {
    asked.words.append(text, static_cast<std::size_t>(got));
    return;
  }
  asked.claim = Fd();
}

// Whether it may still end because it was asked.
bool pending(Asked& asked) {
  pollfd ended{asked.process.get(), POLLIN, 0};
  if (::poll(&ended, 1, 0) > 0) return false;
  return asked.claim || agreed(asked);
}

}  // namespace

void take_over(const std::vector<std::string>& uuids, Time limit) {
  std::vector<Asked> all;
  for (const std::string& uuid : uuids) {
    if (auto asked = ask(uuid)) all.push_back(std::move(*asked));
  }
  const Time until = steady_now() + limit;
  for (;;) {
    std::erase_if(all, [](Asked& asked) { return !pending(asked); });
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_now()).count();
    if (all.empty() || left <= 0) return;
    std::vector<pollfd> files;
    for (const Asked& asked : all) {
      files.push_back({asked.claim.get(), POLLIN, 0});
      files.push_back({asked.process.get(), POLLIN, 0});
    }
    if (::poll(files.data(), files.size(), static_cast<int>(left)) <= 0) continue;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (files[2 * i].revents != 0) hear(all[i]);
    }
  }
}

bool mark_system(std::string& why) {
  struct stat folder {};
  if (::mkdir(kSystemFolder, 0755) != 0 && errno != EEXIST) {
    why = std::string("making ") + kSystemFolder + ": " + std::strerror(errno);
    return false;
  }
  const bool ours = ::lstat(kSystemFolder, &folder) == 0 && S_ISDIR(folder.st_mode) &&
                    folder.st_uid == 0 && (folder.st_mode & 022) == 0;
  const Fd mark(ours ? ::open(kSystemMark, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644) : -1);
  if (!mark)
    why = std::string("writing ") + kSystemMark + ": " + std::strerror(ours ? errno : EPERM);
  return static_cast<bool>(mark);
}

bool wants_gpus(int fd) {
  const std::string_view request(kTakeOver);
  char text[sizeof(kTakeOver)] = "";
  const ssize_t got = ::recv(fd, text, sizeof(text), MSG_DONTWAIT);
  return got > 0 && std::string_view(text, static_cast<std::size_t>(got)) == request;
}

}  // namespace switchyard::monitor
