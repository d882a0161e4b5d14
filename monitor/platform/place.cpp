#include "monitor/platform/place.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "monitor/platform/owner.h"
#include "monitor/platform/processes.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

constexpr char kCgroups[] = "/sys/fs/cgroup";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Calls `each` with every part and the path up to it, until that answers false.
template <typename Each>
void for_parts(std::string_view path, Each each) {
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (!each(path.substr(at, end - at), path.substr(0, end))) return;
    at = end + 1;
  }
}

std::string_view believed_part(std::string_view controllers, std::string_view path,
                               const CgroupOwner& owner) {
  std::string_view believed;
  for_parts(path, [&](std::string_view part, std::string_view up_to) {
    believed = up_to;
    // Where the file system can't be asked, the name alone tells a user's manager.
    if (part.rfind("user@", 0) == 0) return false;
    return owner(controllers, std::string(up_to)).value_or(0) == 0;
  });
  return believed;
}

// "podUID", "kubepods-burstable-podUID.slice" with '_' for '-'
std::string pod_in(std::string_view part) {
  constexpr std::string_view kSlice = ".slice";
  constexpr std::size_t kLeast = 32, kMost = 36;
  if (ends_with(part, kSlice)) part.remove_suffix(kSlice.size());
  const std::size_t at = part.rfind("pod");
  if (at == part.npos || (at != 0 && part.rfind("kubepods-", 0) != 0)) return {};
  std::string uid(part.substr(at + 3));
  std::replace(uid.begin(), uid.end(), '_', '-');
  const bool fits = std::all_of(uid.begin(), uid.end(),
                                [](unsigned char c) { return std::isxdigit(c) != 0 || c == '-'; });
  return fits && uid.size() >= kLeast && uid.size() <= kMost ? uid : std::string();
}

void take_names(std::string_view path, Place& out) {
  const bool login = path.rfind("/user.slice/", 0) == 0;
  std::string_view outside;
  for_parts(path, [&](std::string_view part, std::string_view up_to) {
    const std::string_view container = container_name(part);
    if (!container.empty()) {
      if (out.container.empty()) out.container = container;
      return false;
    }
    outside = up_to;
    const bool in_pods = up_to.find("kubepods") != up_to.npos;
    if (out.pod.empty() && in_pods) out.pod = pod_in(part);
    if (out.unit.empty() && !login && (ends_with(part, ".service") || ends_with(part, ".scope"))) {
      out.unit = printable(part);
    }
    return true;
  });
  if (out.slurm_job.empty()) out.slurm_job = slurm_job_in(std::string(outside));
}

std::optional<uid_t> owner_of_folder(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  return about.st_uid;
}

std::optional<uid_t> owner_of_cgroup(std::string_view controllers, const std::string& path) {
  // Beside the monitor's own, in a namespace of cgroups: the file system does not show it.
  if (path.rfind("/..", 0) == 0) return std::nullopt;
  if (!controllers.empty()) {
    constexpr std::string_view kName = "name=";
    if (controllers.rfind(kName, 0) == 0) controllers.remove_prefix(kName.size());
    return owner_of_folder(kCgroups + ("/" + std::string(controllers)) + path);
  }
  const auto owner = owner_of_folder(kCgroups + path);
  return owner ? owner : owner_of_folder(kCgroups + ("/unified" + path));
}

}  // namespace

void Place::add(const Place& other) {
  for (std::string Place::*name :
       {&Place::container, &Place::pod, &Place::unit, &Place::slurm_job}) {
    if (!(other.*name).empty()) this->*name = other.*name;
  }
}

Place place_in(std::string_view cgroups, const CgroupOwner& owner) {
  Place out;
  // "0::PATH" of version 2; "NUMBER:CONTROLLERS:PATH" of version 1.
  while (!cgroups.empty()) {
    const std::string_view line = cgroups.substr(0, cgroups.find('\n'));
    cgroups.remove_prefix(std::min(line.size() + 1, cgroups.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    take_names(believed_part(controllers, line.substr(second + 1), owner), out);
  }
  return out;
}

Place place_of(pid_t pid) {
  if (pid <= 0) return {};
  return place_in(cgroups_of(pid), owner_of_cgroup);
}

}  // namespace switchyard::monitor
