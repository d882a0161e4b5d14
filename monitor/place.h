// The monitor's place in the world: the directory and the socket it listens on, and its claims on
// the GPUs it governs.
//
// Concept. A directory that others could have prepared is not trusted: owner and mode are checked.
// A lock file beside the socket tells a living monitor from a left-over socket. A GPU is claimed by
// binding the abstract socket "\0switchyard-gpu-<UUID>", which the kernel frees with the process;
// who connects to it is told who governs the GPU.
//
// Threading: at start-up, before the loop.
#pragma once

#include <string>
#include <vector>

#include "monitor/fd.h"

namespace switchyard::monitor {

class Place {
 public:
  Place() = default;
  Place(Place&&) = default;
  Place& operator=(Place&&) = delete;
  ~Place();

  // Makes the directory if need be, takes the lock, listens. False, with `why`, when refused;
  // `taken` tells that another monitor is living there.
  bool open(const std::string& socket, std::string& why, bool& taken);
  int release_listener() { return listener_.release(); }

 private:
  std::string path_;
  Fd lock_, listener_;
};

// One listening abstract socket per UUID. Empty with `why` naming the other monitor when one of the
// GPUs is governed already.
std::vector<Fd> claim_gpus(const std::vector<std::string>& uuids, std::string& why);

}  // namespace switchyard::monitor
