// The narrow door to processes, users and memory of this machine: names, owners, and handles that a
// reused PID can't fool.
//
// Threading: any thread. Every answer may be out of date when it arrives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/platform/owner.h"
#include "monitor/platform/standstill.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

// The process at the other end of a socket, as the kernel says. `pid` is 0 for a process that this
// PID namespace can't see.
struct Peer {
  pid_t pid = 0;
  uid_t uid = static_cast<uid_t>(-1);
  std::string container = {};  // owner.h; the server asks for it

  std::vector<gid_t> groups = {};  // of the process when it connected

  uid_t account() const { return account_of(uid, container); }
  Owner owner() const {
    Owner out{uid, container};
    out.groups = groups;
    return out;
  }
};

std::optional<Peer> peer_of(int socket);

// Readable once the process is dead. Empty when there is no such process (`dead` is then true), or
// when it can't be watched. Then pid is 0, or the kernel has no pidfds.
Fd open_process(pid_t pid, bool& dead);

// The same of the process at the other end of a socket, also where its number is another's by now.
// Empty, too, where the kernel is older than 6.5.
Fd open_peer(int socket, bool& dead);

std::string process_name(pid_t pid);  // empty when unknown
// 'R' runs, 'S' sleeps, 'D' waits for a disk, 'T' is stopped, 'Z' has ended, and what else proc(5)
// has; 0: unknown.
char process_state(pid_t pid);  // that of its first thread
char thread_state(pid_t pid, std::uint32_t thread);
// Why it can't act just now, as far as we may know.
Standstill standstill_of(pid_t pid);
// The same by the folder of a process, and that of cgroups.
Standstill standstill_in(const std::string& process, const std::string& cgroups);
// The number as text when it has no name, or as long as nobody here knows it. Never waits.
std::string user_name(uid_t uid);
std::optional<uid_t> process_owner(pid_t pid);
// The PID of `pid` in its own, innermost PID namespace.
std::optional<pid_t> own_pid(pid_t pid);

// The PID and user namespaces of a process, as one text to compare; empty when that can't be known.
std::string container_of(pid_t pid);

// The number of the Slurm job in a path of cgroups; empty: none.
std::string slurm_job_in(const std::string& cgroups);
// The same by the id that the plugin and the prolog give a job, "slurm-NUMBER".
std::string slurm_job_named(const std::string& job);

// Whether a process may have Switchyard's library loaded: true, too, when we may not look. It may
// take as long as the process likes: not for the monitor's loop (library_looks.h).
bool may_be_managed(pid_t pid);

// What the host can still give out without swapping; 0 when unknown.
std::uint64_t available_memory();

}  // namespace switchyard::monitor
