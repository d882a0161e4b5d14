// The control device: the ioctls by which a driver makes channel groups and sets their slices.
//
// Concept. A real libcuda talks to its kernel module through libc's `ioctl`, so a preloaded library
// sees it. It allocates a client, a device and four channel groups per context, and sets a slice of
// 2048 us on the compute one. This does the same, with the same requests and structs, on an open
// file of the state file. A library that interposes `ioctl` sees them and may add its own. The
// `ioctl` that this library exports answers those on its own open file and forwards the rest.
//
// Statuses are in the structs, as the kernel module's: 0, 0x23 (not the open file that allocated
// the object), 0x57 (no such object).
//
// Threading: any thread; one lock inside.
#pragma once

#include <cstdint>

#include "shared_state.h"

namespace fakecuda::control {

struct Groups {
  std::uint32_t device = 0;              // object handle
  std::uint32_t objects[kEngines] = {};  // object handles of the groups
  int entries[kEngines] = {-1, -1, -1, -1};
};

// Allocates a context's device and groups through `ioctl`. False: the state has no group left.
bool open_groups(State& state, int gpu, Groups& groups);
void close_groups(const Groups& groups);

// Our part of `ioctl`: true when `fd` is ours, and *result is the answer.
bool answer(int fd, unsigned long request, void* argument, int* result);

}  // namespace fakecuda::control
