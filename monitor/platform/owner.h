// The owner of a process or a job: a user of the host, and the container that it is in.
//
// Concept. The user alone is not enough, for root in two containers is two users, and neither is
// the host's root. The container is a text to compare. It is empty for the monitor's own
// namespaces. Else it names the namespaces, as the kernel numbers them, and the outermost container
// of the cgroup's path. A user may make cgroups of any name below one that is theirs, and processes
// in namespaces of their own. So a container only takes rights away: it never gives any.
//
// Threading: plain values; what reads /proc does so on any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard::monitor {

struct Owner {
  Owner(uid_t user, std::string in = {}) : uid(user), container(std::move(in)) {}  // NOLINT

  uid_t uid;
  std::string container;
  std::vector<gid_t> groups = {};  // as the kernel knows them; not part of who it is

  bool operator==(const Owner& other) const {
    return uid == other.uid && container == other.container;
  }
  // Of the machine, or of what the monitor itself is in.
  bool is_root() const { return uid == 0 && container.empty(); }
};

// Whether `who` may change what belongs to `owner`. Root may, and the owner. So may the same user
// outside of the container, who could kill its processes, too.
inline bool may_change(const Owner& owner, const Owner& who) {
  return who.is_root() ||
         (who.uid == owner.uid && (who.container.empty() || who.container == owner.container));
}

// The account to which an owner's limits belong (users.h). A user has one, in containers too: any
// user can make any number of namespaces. Root has another one in each container that its cgroup
// names, a number that no user has. Containers without a name have one account together.
uid_t account_of(uid_t uid, std::string_view container);
inline uid_t account_of(const Owner& owner) { return account_of(owner.uid, owner.container); }

// The id in a part of a cgroup's path: 64 hexadecimal digits together. Empty: there is none.
std::string_view container_name(std::string_view part);

// The text of /proc/PID/cgroup; of an endless one the beginning.
std::string cgroups_of(pid_t pid);

// The path of the outermost container in the text of /proc/PID/cgroup; empty: there is none. A part
// that has 64 hexadecimal digits together names one: Docker, containerd, CRI-O and podman do so.
std::string container_cgroup(std::string_view text);

// The container of a process, from its namespaces and its cgroup. It is "unknown" where we may not
// look: nobody else is in it.
std::string container_id(pid_t pid);

// The same for the process at the other end of a socket, also where its number is another's by now.
std::string container_of_peer(int socket, pid_t pid);

}  // namespace switchyard::monitor
