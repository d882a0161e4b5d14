#include "monitor/platform/processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "monitor/platform/process_stat.h"
#include "switchyard/pidfd.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

std::string proc(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

constexpr auto kNameLasts = std::chrono::minutes(5);

std::optional<std::string> local_name(uid_t uid) {
  std::FILE* file = std::fopen("/etc/passwd", "re");
  if (file == nullptr) return std::nullopt;
  std::optional<std::string> name;
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> room(16 * 1024);
  while (!name && ::fgetpwent_r(file, &entry, room.data(), room.size(), &found) == 0) {
    if (found->pw_uid == uid) name = found->pw_name;
  }
  std::fclose(file);
  return name;
}

// Names of users. A thread asks for those that the machine itself does not know, because a name
// service across the network may take seconds. Until it has answered, the number stands in.
class UserNames {
 public:
  std::string name(uid_t uid) {
    const std::lock_guard lock(mutex_);
    Known& known = names_[uid];
    const auto now = std::chrono::steady_clock::now();
    if (known.text.empty() || now - known.asked_at >= kNameLasts) {
      known.asked_at = now;
      if (const auto local = local_name(uid)) {
        known.text = *local;
      } else {
        if (known.text.empty()) known.text = std::to_string(uid);
        ask(uid);
      }
    }
    return known.text;
  }

 private:
  struct Known {
    std::string text;
    std::chrono::steady_clock::time_point asked_at;
  };

  // pre: mutex_ is held.
  void ask(uid_t uid) {
    asked_.push_back(uid);
    if (asking_) return;
    try {
      std::thread([this] { serve(); }).detach();
      asking_ = true;
    } catch (const std::system_error&) {
      asked_.clear();
    }
  }
  void serve() {
    std::unique_lock lock(mutex_);
    while (!asked_.empty()) {
      const uid_t uid = asked_.front();
      asked_.pop_front();
      lock.unlock();
      passwd entry{};
      passwd* found = nullptr;
      std::vector<char> room(64 * 1024);
      const int error = ::getpwuid_r(uid, &entry, room.data(), room.size(), &found);
      lock.lock();
      if (error == 0 && found != nullptr) names_[uid].text = found->pw_name;
    }
    asking_ = false;
  }

  std::mutex mutex_;
  std::map<uid_t, Known> names_;
  std::deque<uid_t> asked_;
  bool asking_ = false;
};

}  // namespace

namespace {

// From the kernel, for a service of names may take its time. A user in a namespace of theirs may
// have given groups up, but has none of others.
std::vector<gid_t> groups_of_peer(int socket, gid_t own) {
  constexpr std::size_t kMostGroups = 1024;  // each connection keeps them
  std::vector<gid_t> groups(32);
  auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int failed = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes);
  if (failed != 0 && errno == ERANGE && bytes <= kMostGroups * sizeof(gid_t)) {
    groups.resize(bytes / sizeof(gid_t));
    failed = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes);
  }
  groups.resize(failed == 0 ? bytes / sizeof(gid_t) : 0);
  groups.push_back(own);
  return groups;
}

}  // namespace

std::optional<Peer> peer_of(int socket) {
  ucred found{};
  socklen_t bytes = sizeof(found);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0) return std::nullopt;
  return Peer{found.pid, found.uid, {}, groups_of_peer(socket, found.gid)};
}

Fd open_process(pid_t pid, bool& dead) {
  dead = false;
  Fd out;
  if (pid > 0) {
    out = open_pidfd(pid);
    dead = !out && errno == ESRCH;
  }
  return out;
}

namespace {

// Headers and kernels before 6.5 have none.
#if !defined(SO_PEERPIDFD) && (defined(__x86_64__) || defined(__aarch64__))
#define SO_PEERPIDFD 77
#endif

Fd peer_pidfd([[maybe_unused]] int socket) {
#ifdef SO_PEERPIDFD
  int pidfd = -1;
  socklen_t bytes = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0) return Fd(pidfd);
#else
  errno = ENOPROTOOPT;
#endif
  return {};
}

// Of a living process: this one.
bool tells_peers() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const Fd one(ends[0]), other(ends[1]);
  return static_cast<bool>(peer_pidfd(one.get()));
}

}  // namespace

Fd open_peer(int socket, bool& dead) {
  static const bool told = tells_peers();
  Fd out = told ? peer_pidfd(socket) : Fd();
  // Of one that has gone: EINVAL before Linux 6.16.
  pollfd entry{out.get(), POLLIN, 0};
  dead = out ? ::poll(&entry, 1, 0) > 0 : told && (errno == ESRCH || errno == EINVAL);
  return out;
}

std::string process_name(pid_t pid) {
  if (pid <= 0) return {};
  std::ifstream file(proc(pid, "comm"));
  std::string name;
  std::getline(file, name);
  return printable(name);
}

namespace {

char state_in(const std::string& path) {
  const std::string word = word_of_stat(path, kStatState);
  return word.empty() ? '\0' : word.front();
}

}  // namespace

char process_state(pid_t pid) { return pid > 0 ? state_in(proc(pid, "stat")) : '\0'; }

char thread_state(pid_t pid, std::uint32_t thread) {
  if (pid <= 0) return 0;
  return state_in(proc(pid, ("task/" + std::to_string(thread) + "/stat").c_str()));
}

namespace {

// More threads than that are like these.
constexpr int kMostThreads = 256;

bool all_threads_are(const std::string& process, const char* states) {
  std::error_code error;
  std::filesystem::directory_iterator task(process + "/task", error);
  int looked = 0;
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    const char state = state_in(task->path().string() + "/stat");
    if (state != 0 && std::strchr(states, state) == nullptr) return false;
    if (++looked == kMostThreads) return true;
  }
  return looked != 0;
}

bool has_line(const std::string& path, const char* begin) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(begin, 0) == 0) return true;
  }
  return false;
}

// A line is ID:CONTROLLERS:PATH; those of version 2 name no controllers.
bool is_frozen(const std::string& process, const std::string& cgroups) {
  std::ifstream file(process + "/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.find("/..") != std::string::npos) continue;  // outside of our own namespace
    if (controllers == "freezer") {
      if (has_line(fmt::format("{}/freezer{}/freezer.state", cgroups, path), "FROZEN")) return true;
    } else if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) {
        const std::string events = fmt::format("{}{}{}/cgroup.events", cgroups, mount, path);
        if (has_line(events, "frozen 1")) return true;
      }
    }
  }
  return false;
}

}  // namespace

Standstill standstill_of(pid_t pid) {
  if (pid <= 0) return Standstill::kNone;
  std::string folder = proc(pid, "");
  folder.pop_back();
  return standstill_in(folder, "/sys/fs/cgroup");
}

Standstill standstill_in(const std::string& process, const std::string& cgroups) {
  constexpr char kState[] = "State:\t";
  constexpr std::size_t kAt = sizeof(kState) - 1;
  std::ifstream file(process + "/status");
  char state = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(kState, 0) == 0 && line.size() > kAt) state = line[kAt];
    if (line.rfind("CoreDumping:\t1", 0) == 0) return Standstill::kDumping;
  }
  if (state == 'T') return Standstill::kStopped;
  if (state == 't' && all_threads_are(process, "tT")) return Standstill::kTraced;
  if (state != 'S' && state != 'D') return Standstill::kNone;
  if (is_frozen(process, cgroups)) return Standstill::kFrozen;
  const bool disk = state == 'D' && all_threads_are(process, "D");
  return disk ? Standstill::kDisk : Standstill::kNone;
}

std::string user_name(uid_t uid) {
  // Never destroyed: its thread may stand in a name service when the process ends.
  static auto* const names = new UserNames;
  return names->name(uid);
}

std::optional<uid_t> process_owner(pid_t pid) {
  // Not the owner of /proc/PID: a process makes that root by prctl(PR_SET_DUMPABLE, 0).
  std::ifstream file(proc(pid, "status"));
  std::string line;
  while (pid > 0 && std::getline(file, line)) {
    if (line.rfind("Uid:", 0) != 0) continue;
    std::istringstream numbers(line.substr(4));
    uid_t real = 0;
    uid_t effective = 0;
    if (numbers >> real >> effective) return effective;
  }
  return std::nullopt;
}

// "/slurm/uid_1000/job_123/step_0" of version 1, "/system.slice/slurmstepd.scope/job_123/step_0".
std::string slurm_job_in(const std::string& cgroups) {
  static constexpr std::string_view kJob = "/job_";
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t slurm = line.find("slurm");
    const std::size_t job = slurm == std::string::npos ? slurm : line.find(kJob, slurm);
    if (job == std::string::npos) continue;
    const std::size_t begin = job + kJob.size();
    const std::size_t end = std::min(line.find_first_not_of("0123456789", begin), line.size());
    const bool whole = end == line.size() || line[end] == '/';
    if (whole && end > begin && end - begin <= 20) return line.substr(begin, end - begin);
  }
  return {};
}

std::string slurm_job_named(const std::string& job) {
  static constexpr std::string_view kPrefix = "slurm-";
  if (job.rfind(kPrefix, 0) != 0) return {};
  const std::string number = job.substr(kPrefix.size());
  const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
  return digits && !number.empty() && number.size() <= 20 ? number : std::string();
}

std::string container_of(pid_t pid) {
  std::string out;
  for (const char* kind : {"ns/pid", "ns/user"}) {
    char text[64] = "";
    const ssize_t got = ::readlink(proc(pid, kind).c_str(), text, sizeof(text));
    if (pid <= 0 || got <= 0) return {};
    out.append(text, static_cast<std::size_t>(got));
  }
  return out;
}

// A stranger's may have hundreds of megabytes.
constexpr std::size_t kMostOfMaps = 1 << 20;

bool may_be_managed(pid_t pid) {
  std::ifstream maps(proc(pid, "maps"));
  std::string line;
  // A process that has ended between two questions reads as empty, too; the next look knows.
  bool read = false;
  for (std::size_t bytes = 0; std::getline(maps, line); bytes += line.size()) {
    if (bytes > kMostOfMaps) return true;
    read = true;
    if (line.find("/libswitchyard") != std::string::npos) return true;
  }
  return !read;
}

std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes << 10;
    std::getline(file, unit);
  }
  return 0;
}

std::optional<pid_t> own_pid(pid_t pid) {
  std::ifstream file(proc(pid, "status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("NSpid:", 0) != 0) continue;
    std::istringstream numbers(line.substr(6));
    pid_t last = 0;
    while (numbers >> last) {
    }
    return last;
  }
  return std::nullopt;
}

}  // namespace switchyard::monitor
