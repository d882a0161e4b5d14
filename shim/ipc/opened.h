// Memory of other processes that is mapped here: what stands in for cuIpcOpenMemHandle and
// cuIpcCloseMemHandle of handles of ours (handle.h).
//
// Concept. The monitor gives a descriptor for each chunk. They are imported and mapped side by
// side, at addresses of their own, for the device of the calling thread. As with the driver, memory
// that is open already is not mapped again but counted. The last close waits for the context's work
// and unmaps. All that a context has opened ends with it. It is charged to whoever made it, never
// here.
//
// A process needs a monitor for it, but no swappable memory of its own.
//
// Threading: any thread. One opens at a time, and waits for the monitor as long as it may take; all
// else waits for nobody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/calls/allocate.h"

namespace switchyard::shim::ipc {

// Where a call is the driver's, each of these answers false and leaves `result` alone.

// As cuIpcOpenMemHandle.
bool open(CUdeviceptr* address, const CUipcMemHandle& given, unsigned flags, CUresult& result);
// As cuIpcCloseMemHandle. pre: nothing of ours is held.
bool close(CUdeviceptr address, CUresult& result);

using swap::Bounds;
// False: nothing that is open lies there.
bool opened(CUdeviceptr address, Bounds& bounds);
// The same; sets SYNC_MEMOPS of it.
bool set_sync_memops(CUdeviceptr address, bool on);

// The owner (memory/owner.h) has ended, and its work with it.
void close_owned(int lane, std::uint64_t owner);

}  // namespace switchyard::shim::ipc
