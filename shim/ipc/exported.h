// Memory of ours that other processes may open: what stands in for cuIpcGetMemHandle.
//
// Concept. The driver has legacy IPC only for memory that it made as one. A swappable allocation is
// several chunks, and each is exported as a descriptor. The monitor keeps these for processes of
// the same user that bring the key (wire.h: kShare). The handle holds the key. Chunks are made such
// that they can be exported, as frameworks make theirs: there is no descriptor until one is.
//
// Another process maps the chunks themselves, so from the first handle on the range stays where it
// is, and counts as memory that can't move. The handle of an allocation is always the same. Another
// monitor than the one that was told is told again with the next handle that is asked for.
//
// Threading: any thread. Waits while memory is away, and for the monitor, as long as it may take.
#pragma once

#include "shim/driver.h"
#include "shim/swap/memory/range_table.h"
#include "switchyard/wire.h"

namespace switchyard::shim::ipc {

// As cuIpcGetMemHandle. False: what `address` lies in is the driver's, and `result` is untouched.
bool get_handle(CUipcMemHandle* out, CUdeviceptr address, CUresult& result);

// Whether there is a handle to be had.
bool can_export(CUdeviceptr address);

// Whether this process exports it itself.
bool is_own(const wire::Key& key);

// A range that stays has been freed: nobody shall open it any more. The monitor is told once the
// RangesLock that lives has ended. pre: a RangesLock lives.
void ended(const swap::Range& range);

}  // namespace switchyard::shim::ipc
