// The monitor's place in the world: the directory and the socket it listens on, and its claims on
// the GPUs it governs.
//
// Concept. A directory that others could have prepared is not trusted: owner and mode are checked.
// A lock file beside the socket tells a living monitor from a left-over socket. The socket may be
// systemd's (passed_sockets.h): it is taken as it is, and stays when the monitor ends.
//
// A GPU is claimed twice. The abstract socket "\0switchyard-gpu-<UUID>" tells whoever connects to
// it who governs the GPU, within one network namespace. A lock on the GPU's device file holds in
// every container that has the same file. The kernel frees both with the process. Any user can take
// both, so neither keeps root's monitor from starting but another one of root's. Two monitors do no
// harm, because neither gives a short slice while it sees work that is not its clients'
// (nvml_sampler.h).
//
// Threading: at start-up, before the loop.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <optional>
#include <string>
#include <vector>

#include "switchyard/fd.h"

namespace switchyard::monitor {

// How many connections the kernel keeps until they are accepted. They are accepted in their order,
// so few of them stand before anybody's; whoever connects then waits in connect(), in its turn.
inline constexpr int kBacklog = 512;

class ListenSocket {
 public:
  ListenSocket() = default;
  ListenSocket(ListenSocket&&) = default;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  // Makes the directory if need be, takes the lock, listens. False, with `why`, when refused;
  // `taken` tells that another monitor is living there. One of `passed` must be the socket, if there
  // are any.
  bool open(const std::string& socket, std::string& why, bool& taken, std::vector<Fd> passed = {});
  bool was_passed() const { return was_passed_; }
  int release_listener() { return listener_.release(); }

 private:
  bool listen(const std::string& socket, const sockaddr_un& address, std::string& why, bool& taken);

  std::string path_;
  Fd lock_, listener_;
  bool was_passed_ = false;
};

// One listening abstract socket per UUID; none for one that another user keeps from root. Empty
// with `why` naming the other monitor when one of the GPUs is governed already.
std::vector<Fd> claim_gpus(const std::vector<std::string>& uuids, std::string& why);

// Locks the files. False, with `why` naming the other monitor, when one of them is locked by
// another monitor. A lock of anything else is let be, and so is a file that can't be opened.
bool lock_devices(const std::vector<std::string>& files, std::vector<Fd>& locks, std::string& why);

// The holder of a lock on the file behind `fd`; nullopt: none that this PID namespace can see.
std::optional<pid_t> lock_holder(int fd);

}  // namespace switchyard::monitor
