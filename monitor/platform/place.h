// Where a process runs, by the names in the path of its cgroup: for listings, labels and the
// history. It gives no rights (owner.h).
//
// Concept. The kernel says the path, and whoever may write to a folder of the cgroup file system
// gives names below it. So names are believed down to the first folder that is not root's, that
// one included, and no further. A user's own manager (user@1000.service) is such a folder, and so
// is a service that systemd delegates to a user. Of containers within containers the outermost
// counts, and a pod within one is none. Root in a container may make both.
//
// Threading: pure functions, and one that reads /proc and /sys/fs/cgroup, on any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace switchyard::monitor {

// Each is empty where there is none, or none that is believed.
struct Place {
  std::string container;  // its id: 64 hexadecimal digits
  std::string pod;        // the uid of a pod of Kubernetes, with hyphens
  std::string unit;       // of systemd, "train.service"; none for a login
  std::string slurm_job;  // its number

  // Takes the names that the other has.
  void add(const Place& other);
  bool operator==(const Place&) const = default;
};

// The user to whom a cgroup belongs; nullopt: not known. `controllers` is empty for version 2.
using CgroupOwner =
    std::function<std::optional<uid_t>(std::string_view controllers, const std::string& path)>;

// By the text of /proc/PID/cgroup, of version 1, 2, or both.
Place place_in(std::string_view cgroups, const CgroupOwner& owner);
Place place_of(pid_t pid);

}  // namespace switchyard::monitor
