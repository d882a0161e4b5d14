// Channel groups (TSGs) of this process, learned by watching libcuda's ioctls.
//
// Concept. libcuda allocates a compute group and copy-engine groups when a context is made, through
// plain libc ioctl. Watching the allocation tells us the handles and the open file that own each
// group. The stock driver then lets that file set the group's hardware time slice (facts: request
// 0xc020462a, cmd 0xa06c0103). A group's GPU is known from the context that was being made, and
// after that from its parent, RM's device handle. The server of an island has one GPU
// (island/server.h).
//
// Threading: any thread; one short lock, never held during an ioctl.
#pragma once

#include <cstdint>

#include "shim/no_copy.h"

namespace switchyard::shim::groups {

// RAII: this thread is making a context on `device`, so groups that are born belong to it.
class Making : NoCopy {
 public:
  explicit Making(int device);
  ~Making();

 private:
  int before_;
};

// Looks at one ioctl after the driver answered it. Cheap for everything that isn't RM's.
void observe(int fd, unsigned long request, const void* argument, int result);

// Puts the slices that the page wants in force on every group of every lane, raising before
// lowering, and publishes what is in force.
void apply_wanted();

// Gives every group the driver's own slice back: no monitor vouches for a short one any more.
void restore_default();

// The driver has checkpointed the process: all groups are gone, however it freed them.
void lose_all();
// It brings them back on threads of its own: those that are born until are_back() are on `device`.
void come_back(int device);
void are_back();

// In a forked child: forgets the parent's groups.
void clear();

}  // namespace switchyard::shim::groups
