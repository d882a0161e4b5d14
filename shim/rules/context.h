// Rules for contexts: joining at cuInit, whose GPU a new channel group is on, and which GPU the
// calling thread works on.
//
// Threading: any thread.
#pragma once

#include <tuple>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/driver.h"
#include "shim/gate/gate.h"
#include "shim/memory/context_memory.h"
#include "shim/memory/owner.h"
#include "shim/memory/pools.h"
#include "shim/slices/groups.h"
#include "shim/swap/calls/pooled.h"
#include "shim/swap/mover.h"

namespace switchyard::shim::rules {

// Contexts of this process on `device` came or went by `change`; their memory is the monitor's to
// measure. Does nothing in an unmanaged process.
void contexts_changed(int device, int change);
// The context has ended, and its work with it (owner: memory/owner.h).
void work_gone(int device, std::uint64_t owner);

// The GPU has a context now, and is given access to the memory of others (swap/memory/peers.h).
void reach_peers(int device);

// The mover has a context to copy by, and one that may have to leave though no memory can.
void context_made(int device);

// Whether the primary context of `device` is active.
bool primary_active(int device);

CUresult init(CUresult (*original)(unsigned), unsigned flags);

// The size of a context or a module can't be foreseen. It is looked at once it is there, and given
// back where it does not fit into the quota.

// Whether the job is beyond its quota on `device`. Close to it: asks the monitor, who asks NVML.
bool exceeds_quota(int device);

// Release and reset: the primary context may or may not end.
template <typename Original>
CUresult primary_end(Original original, CUdevice device) {
  CUresult result = CUDA_SUCCESS;
  bool ended = false;
  {
    const gate::Waiting waiting(gate::attentive(lane_of_device(device)), gate::Waiting::kEnd);
    gate::Ending ending(device, 0);
    const swap::mover::Standstill standstill;
    swap::pooled::context_ends(0);
    const swap::PrimaryHeld held(device);
    const bool before = primary_active(device);
    result = original(device);
    ended = before && !primary_active(device);
    if (!ended) ending.lives_on();
    if (ended) {
      memory::primary_gone(device);  // the mover must not find it any more
      ending.give_back();
      work_gone(device, 0);
    }
  }
  forget_lane();
  if (ended) {
    pools::settle_all();
    contexts_changed(device, -1);
  }
  return result;
}

template <typename Original>
CUresult primary_retain(Original original, CUcontext* context, CUdevice device) {
  const groups::Making making(device);
  bool before = false;
  CUresult result = CUDA_SUCCESS;
  {
    const swap::PrimaryHeld held(device);
    before = primary_active(device);
    result = original(context, device);
    // The next one that retains it may use the memory of other GPUs at once.
    if (result == CUDA_SUCCESS && !before) reach_peers(device);
  }
  if (result == CUDA_SUCCESS && !before) {
    contexts_changed(device, +1);
    context_made(device);
    if (exceeds_quota(device)) {
      primary_end(driver().cuDevicePrimaryCtxRelease_v2, device);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  return result;
}

CUresult context_destroy(CUresult (*original)(CUcontext), CUcontext context);

// Every version of cuCtxCreate ends with the device.
template <typename Original, typename... Args>
CUresult context_create(Original original, Args... args) {
  const CUdevice device = std::get<sizeof...(Args) - 1>(std::tie(args...));
  const groups::Making making(device);
  const CUresult result = original(args...);
  forget_lane();
  if (result == CUDA_SUCCESS) {
    memory::context_created(device, *std::get<0>(std::tie(args...)));
    contexts_changed(device, +1);
    context_made(device);
    context_memory::forget_kernels();  // it has none of what they need
    if (exceeds_quota(device)) {
      CUcontext& context = *std::get<0>(std::tie(args...));
      context_destroy(driver().cuCtxDestroy_v2, context);
      context = nullptr;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  return result;
}

template <typename Original>
CUresult set_limit(Original original, CUlimit limit, size_t value) {
  context_memory::Change change;
  if (const CUresult refused = context_memory::begin_limit(limit, value, change)) return refused;
  const CUresult result = original(limit, value);
  context_memory::end(change, result);
  return result;
}

// The driver's free memory on the calling thread's GPU, if that has a quota; 0: it is not known.
std::uint64_t free_under_quota();
// Whether a module that is loaded since has taken much, and the job is beyond its quota for it.
bool module_exceeds(std::uint64_t free_before);

template <typename Original, typename Handle, typename Unload, typename... Args>
CUresult load(Unload unload, Original original, Handle* out, Args... args) {
  const std::uint64_t before = free_under_quota();
  const CUresult result = original(out, args...);
  if (result != CUDA_SUCCESS || before == 0 || !module_exceeds(before)) return result;
  unload(*out);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Original, typename... Args>
CUresult load_module(Original original, CUmodule* module, Args... args) {
  return load(driver().cuModuleUnload, original, module, args...);
}

template <typename Original, typename... Args>
CUresult load_library(Original original, CUlibrary* library, Args... args) {
  return load(driver().cuLibraryUnload, original, library, args...);
}

#if CUDA_VERSION >= 12040
template <typename Original>
CUresult green_create(Original original, CUgreenCtx* context, CUdevResourceDesc resources,
                      CUdevice device, unsigned flags) {
  const groups::Making making(device);
  swap::pooled::green_context_made();
  return original(context, resources, device, flags);
}
#endif

// The calling thread's current context may be another one now.
template <typename Original, typename... Args>
CUresult current_changes(Original original, Args... args) {
  const CUresult result = original(args...);
  forget_lane();
  return result;
}

}  // namespace switchyard::shim::rules
