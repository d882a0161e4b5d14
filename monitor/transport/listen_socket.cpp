#include "monitor/transport/listen_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "monitor/platform/passed_sockets.h"
#include "monitor/platform/processes.h"
#include "switchyard/folders.h"
#include "switchyard/observer.h"
#include "switchyard/paths.h"

namespace switchyard::monitor {
namespace {

std::string said(const std::string& what, const std::string& on) {
  return what + " " + on + ": " + std::strerror(errno);
}

// Whether `path` lies where the rules of paths.h put it, in a directory of our own.
bool is_private(const std::string& path) {
  char user[kSocketPathBytes] = "";
  if (::geteuid() == 0) return false;
  return (user_socket_path(user) && path == user) || (observer_socket_path(user) && path == user);
}

bool make_directory(const std::string& directory, bool only_ours, std::string& why) {
  // Before anything is made or opened there.
  if (const auto foreign = foreign_part_of(directory); foreign && !only_ours) {
    why = foreign->path + " can be changed by others (owner " + user_name(foreign->owner) +
          "): choose another folder with --socket";
    return false;
  }
  const mode_t mode = ::geteuid() == 0 ? 0755 : 0700;
  if (::mkdir(directory.c_str(), mode) != 0 && errno != EEXIST) {
    why = said("making the directory", directory);
    return false;
  }
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) {
    why = said("looking at", directory);
    return false;
  }
  // Only our own directory must be a real one; a person may put a link on a path they chose.
  const bool is_directory =
      S_ISDIR(info.st_mode) ||
      (!only_ours && ::stat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode));
  if (!is_directory) {
    why = directory + " is not a directory: remove it, or choose another with --socket";
    return false;
  }
  if (only_ours && (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)) {
    why = directory + " is not a directory that only you can use (owner " + user_name(info.st_uid) +
          "): remove it, or choose another with --socket";
    return false;
  }
  return true;
}

std::optional<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// What the holder of a claim answers: which socket it listens on.
std::string words_of(int fd) {
  pollfd poll_for{fd, POLLIN, 0};
  char text[256] = "";
  if (::poll(&poll_for, 1, 1000) > 0) {
    const ssize_t got = ::recv(fd, text, sizeof(text) - 1, 0);
    // The name may come from anybody: only what is printable goes into a message.
    for (ssize_t i = 0; i < got; ++i) {
      if (text[i] < ' ' || text[i] > '~') text[i] = '?';
    }
  }
  return text;
}

bool is_known(const Peer& holder) { return holder.uid != Peer{}.uid; }

// Says who manages a GPU, and what to do about it.
std::string governed(const std::string& gpu, const Peer& holder, const std::string& words) {
  const std::string more = words.empty() ? ")" : ", " + words + ")";
  if (!is_known(holder)) {
    return gpu +
           " is claimed by a process that does not answer: end it, or let one monitor serve "
           "all users: 'sudo systemctl enable --now switchyardd'";
  }
  std::string out = gpu + " is managed by ";
  if (holder.pid == 0) {
    return out + "a monitor in another container" + (words.empty() ? "" : " (" + words + ")") +
           ": mount the folder of its socket here and set SWITCHYARD_SOCKET";
  }
  out += "the monitor of " + user_name(holder.uid) + " (pid " + std::to_string(holder.pid) + more;
  if (holder.uid == ::geteuid() || ::geteuid() == 0 || holder.uid == 0) {
    return out + ": use that one, or end it first with 'switchyard stop'";
  }
  return out +
         ": on a shared machine one monitor serves all users: 'sudo systemctl enable --now "
         "switchyardd', or 'sudo switchyardd --system'";
}

// Root's monitor serves all users, so it yields to no claim but one that it knows to be root's.
bool yields_to_us(const std::string& gpu, const Peer& holder) {
  if (::geteuid() != 0 || holder.uid == 0) return false;
  spdlog::warn(
      "{} is claimed by {}: no job gets a slice below the driver's default while jobs of another "
      "monitor use it",
      gpu,
      is_known(holder) ? fmt::format("pid {} of {}", holder.pid, user_name(holder.uid))
                       : "a process that does not answer");
  return true;
}

// Nobody is kept from connecting for so long by others who connect at the same moment.
constexpr int kConnects = 100;
constexpr auto kConnectPause = std::chrono::milliseconds(10);

bool connect_to(int fd, const sockaddr_un& address, socklen_t length) {
  for (int left = kConnects;; --left) {
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return true;
    // EAGAIN: as many wait as its holder lets wait. One that never accepts can't be told from root's.
    if (errno != EAGAIN || left == 0) return false;
    std::this_thread::sleep_for(kConnectPause);
  }
}

// The other end of an abstract socket, as the kernel says, and what it answers; Peer{}: it can't be
// known. Nullopt: nobody listens, so whoever took the name is no monitor.
std::optional<Peer> ask_holder(const sockaddr_un& address, socklen_t length, std::string& words) {
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Peer{};
  if (!connect_to(fd.get(), address, length)) {
    return errno == ECONNREFUSED ? std::nullopt : std::optional<Peer>(Peer{});
  }
  words = words_of(fd.get());
  return peer_of(fd.get()).value_or(Peer{});
}

// The holder of a lock that no process here has. Of a container it may be root's monitor outside of
// it; whoever sees all processes of the machine would see that.
Peer unseen_holder() {
  char name[64] = "";
  const ssize_t got = ::readlink("/proc/self/ns/pid", name, sizeof(name) - 1);
  constexpr std::string_view kFirstNamespace = "pid:[4026531836]";  // PROC_PID_INIT_INO
  return got > 0 && name == kFirstNamespace ? Peer{} : Peer{0, 0};
}

// Whether somebody listens there. A monitor that has just ended may do so for a moment longer than
// it has its lock.
bool is_listened_on(const sockaddr_un& address) {
  for (int left = kConnects; left > 0; --left) {
    const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd ||
        (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno != EAGAIN)) {
      return false;
    }
    std::this_thread::sleep_for(kConnectPause);
  }
  return true;
}

// A socket that a monitor left behind goes; whatever else has the name is somebody's.
bool make_place(const std::string& socket, const sockaddr_un& address, std::string& why,
                bool& taken) {
  struct stat info {};
  if (::lstat(socket.c_str(), &info) != 0) return true;
  if (!S_ISSOCK(info.st_mode)) {
    why = "'" + socket + "' is there and is no socket: choose another place (SWITCHYARD_SOCKET)";
    return false;
  }
  if (is_listened_on(address)) {
    taken = true;
    why = "systemd, or another program, listens on " + socket +
          " and starts a monitor there: use that one, or end it first with 'switchyard stop'";
    return false;
  }
  ::unlink(socket.c_str());
  return true;
}

// The one of `passed` that listens at `socket`.
Fd passed_at(const std::string& socket, std::vector<Fd>& passed, std::string& why) {
  for (Fd& fd : passed) {
    if (!listens_at(fd.get(), socket)) continue;
    // To its peers, a listener is the process that called listen() last.
    ::listen(fd.get(), kBacklog);
    return std::move(fd);
  }
  why = "systemd passed no socket that listens on " + socket +
        ": ListenStream= of the socket unit must be that path";
  return {};
}

}  // namespace

ListenSocket::~ListenSocket() {
  // Under the lock, so that this can't be another monitor's fresh socket.
  if (lock_ && !was_passed_) ::unlink(path_.c_str());
}

bool ListenSocket::open(const std::string& socket, std::string& why, bool& taken,
                        std::vector<Fd> passed) {
  taken = false;
  const auto address = address_of(socket);
  if (!address || socket.front() != '/') {
    why = "the socket '" + socket + "' must be an absolute path of at most 107 bytes";
    return false;
  }
  const std::string directory = socket.substr(0, std::max<std::size_t>(1, socket.rfind('/')));
  if (!make_directory(directory, is_private(socket), why)) return false;
  const std::string lock_path = socket + ".lock";
  Fd lock = open_own_file(lock_path.c_str(), O_RDWR | O_CREAT, why);
  if (!lock) return false;
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    taken = true;
    why = "another monitor listens on " + socket + " already";
    return false;
  }
  if (passed.empty()) {
    if (!listen(socket, *address, why, taken)) return false;
  } else {
    listener_ = passed_at(socket, passed, why);
    if (!listener_) return false;
    was_passed_ = true;
  }
  path_ = socket;
  lock_ = std::move(lock);
  return true;
}

bool ListenSocket::listen(const std::string& socket, const sockaddr_un& address, std::string& why,
                          bool& taken) {
  if (!make_place(socket, address, why, taken)) return false;
  // Non-blocking and close-on-exec from birth; created with no rights for others until chmod.
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t before = ::umask(0177);
  const bool bound = listener && ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address),
                                        sizeof(address)) == 0;
  ::umask(before);
  // Root's monitor serves every user.
  if (!bound || ::chmod(socket.c_str(), ::geteuid() == 0 ? 0666 : 0600) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    why = said("listening on", socket);
    return false;
  }
  listener_ = std::move(listener);
  return true;
}

std::vector<Fd> claim_gpus(const std::vector<std::string>& uuids, std::string& why) {
  std::vector<Fd> out;
  for (const std::string& uuid : uuids) {
    const std::string name = "switchyard-gpu-" + uuid;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), bytes);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        ::listen(fd.get(), 16) == 0) {
      out.push_back(std::move(fd));
      continue;
    }
    if (errno != EADDRINUSE) {
      why = said("claiming", uuid);
      return {};
    }
    std::string words;
    const auto holder = ask_holder(address, length, words);
    if (holder && !yields_to_us(uuid, *holder)) {
      why = governed(uuid, *holder, words);
      return {};
    }
    out.emplace_back();
  }
  return out;
}

std::optional<pid_t> lock_holder(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  // "1: FLOCK  ADVISORY  WRITE 4711 00:06:345 0 EOF"; devices in hexadecimal.
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(info.st_dev), minor(info.st_dev),
                                       static_cast<std::uint64_t>(info.st_ino));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, at;
    pid_t pid = 0;
    if (words >> number >> kind >> advisory >> access >> pid >> at && kind == "FLOCK" &&
        at == file && pid > 0) {
      return pid;
    }
  }
  return std::nullopt;
}

bool lock_devices(const std::vector<std::string>& files, std::vector<Fd>& locks, std::string& why) {
  for (const std::string& file : files) {
    Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) continue;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      locks.push_back(std::move(fd));
      continue;
    }
    const auto pid = lock_holder(fd.get());
    if (pid && process_name(*pid) != "switchyardd") continue;
    const Peer holder =
        pid ? Peer{*pid, process_owner(*pid).value_or(Peer{}.uid)} : unseen_holder();
    if (yields_to_us(file, holder)) continue;
    why = governed(file, holder, "");
    return false;
  }
  return true;
}

}  // namespace switchyard::monitor
