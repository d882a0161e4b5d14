#include "monitor/platform/owner.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

constexpr std::size_t kIdDigits = 64;
constexpr std::size_t kMostOfCgroups = 16384;

// "/a/docker-ID.scope" of "/a/docker-ID.scope/b".
std::string_view up_to_container(std::string_view path) {
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (!container_name(path.substr(at, end - at)).empty()) return path.substr(0, end);
    at = end + 1;
  }
  return {};
}

}  // namespace

std::string_view container_name(std::string_view part) {
  std::size_t digits = 0;
  for (std::size_t at = 0; at < part.size(); ++at) {
    digits = std::isxdigit(static_cast<unsigned char>(part[at])) != 0 ? digits + 1 : 0;
    if (digits == kIdDigits) return part.substr(at + 1 - kIdDigits, kIdDigits);
  }
  return {};
}

std::string cgroups_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  std::string text(kMostOfCgroups, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

uid_t account_of(uid_t uid, std::string_view container) {
  if (uid != 0 || container.empty()) return uid;
  // Beyond the numbers that users have, and below those that mean none.
  constexpr std::size_t kBeyond = 1U << 31;
  const std::string_view cgroup = container.substr(std::min(container.find('/'), container.size()));
  return static_cast<uid_t>(kBeyond + std::hash<std::string_view>{}(cgroup) % (kBeyond - 16));
}

std::string container_cgroup(std::string_view text) {
  // "0::PATH" of version 2; "NUMBER:CONTROLLERS:PATH" of version 1, the same path in each line.
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view found = up_to_container(line.substr(second + 1));
    if (!found.empty()) return std::string(found);
  }
  return {};
}

std::string container_id(pid_t pid) {
  static const std::string own = container_of(::getpid());
  const std::string spaces = container_of(pid);
  if (spaces.empty()) return "unknown " + std::to_string(pid);
  const std::string cgroup = container_cgroup(cgroups_of(pid));
  return spaces == own ? cgroup : spaces + cgroup;
}

std::string container_of_peer(int socket, pid_t pid) {
  bool dead = false;
  const Fd process = open_peer(socket, dead);
  std::string out = container_id(pid);
  // Once it has ended, its number may be another's, with other rights.
  pollfd entry{process.get(), POLLIN, 0};
  if (dead || (process && ::poll(&entry, 1, 0) != 0)) return "ended " + std::to_string(pid);
  return out;
}

}  // namespace switchyard::monitor
