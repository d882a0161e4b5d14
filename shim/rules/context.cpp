#include "shim/rules/context.h"

#include <time.h>

#include "shim/inside.h"
#include "shim/log.h"
#include "shim/memory/account.h"
#include "shim/nccl/norms.h"
#include "shim/no_cancel.h"
#include "shim/swap/memory/peers.h"
#include "shim/work_guard.h"

namespace switchyard::shim::rules {

CUresult init(CUresult (*original)(unsigned), unsigned flags) {
  const CUresult result = original(flags);
  if (result != CUDA_SUCCESS || disabled()) return result;
  if (!join() && required()) {
    log_line(Level::kError, "cuInit: SWITCHYARD_REQUIRE is set and no monitor took this process");
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  return result;
}

bool primary_active(int device) {
  unsigned flags = 0;
  int active = 0;
  const auto ask = driver().cuDevicePrimaryCtxGetState;
  return ask != nullptr && ask(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

void contexts_changed(int device, int change) {
  abi::Lane* lane = lane_of_device(device);
  if (lane == nullptr) return;
  lane->contexts.fetch_add(static_cast<std::uint32_t>(change), std::memory_order_relaxed);
  wire::Charged answer{};
  if (process().joined.load(std::memory_order_acquire) != 0) {
    request(wire::kRefresh, device, 0, answer);
  }
}

namespace {

// Less than this is soon used up by what the driver takes by itself.
constexpr std::uint64_t kClose = 1ull << 30;
// A module of at least this.
constexpr std::uint64_t kLargeModule = 16ull << 20;
// A reading of NVML that is younger is not renewed.
constexpr timespec kReadingAges = {0, 60 * 1000 * 1000};

}  // namespace

bool exceeds_quota(int device) {
  abi::Lane* lane = lane_of_device(device);
  if (lane == nullptr || process().joined.load(std::memory_order_acquire) == 0) return false;
  const std::uint64_t quota = lane->quota_bytes.load(std::memory_order_relaxed);
  if (quota == 0 || account::available_bytes(*lane) > kClose) return false;
  {
    const Outside outside;
    const NoCancel none;
    ::nanosleep(&kReadingAges, nullptr);
  }
  wire::Charged answer{};
  if (!request(wire::kRefresh, device, 0, answer)) return false;
  const std::uint64_t used = process().used_bytes[device].load(std::memory_order_relaxed);
  const std::uint64_t others = lane->others_used_bytes.load(std::memory_order_relaxed);
  if (used + others <= quota) return false;
  account::refuse(lane, used + others - quota);
  return true;
}

std::uint64_t free_under_quota() {
  const abi::Lane* lane = current_lane();
  size_t free = 0;
  const auto ask = driver().cuMemGetInfo_v2;
  const bool known = lane != nullptr && lane->quota_bytes.load(std::memory_order_relaxed) != 0 &&
                     ask != nullptr && ask(&free, nullptr) == CUDA_SUCCESS;
  return known ? free : 0;
}

bool module_exceeds(std::uint64_t free_before) {
  const std::uint64_t now = free_under_quota();
  const abi::Lane* lane = current_lane();
  return now != 0 && now + kLargeModule <= free_before && exceeds_quota(lane_index(lane));
}

void work_gone(int device, std::uint64_t owner) {
  gate::context_gone(device, owner);
  if (device >= 0 && device < static_cast<int>(abi::kMaxGpus)) {
    nccl::norms::context_gone(static_cast<unsigned>(device), owner);
  }
}

void reach_peers(int device) {
  const auto lane = static_cast<unsigned>(device);
  if (lane < swap::lanes()) swap::peers::context_made(lane);
}

void context_made(int device) {
  const auto lane = static_cast<unsigned>(device);
  if (lane < swap::lanes()) swap::mover::start(lane);
  swap::mover::context_made(lane);
}

CUresult context_destroy(CUresult (*original)(CUcontext), CUcontext context) {
  // The device of a context is only told for the current one.
  CUcontext current = nullptr;
  CUdevice device = -1;
  if (driver().cuCtxGetCurrent != nullptr && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS) {
    if (current == context) {
      if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) device = -1;
    } else if (driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
      CUcontext popped = nullptr;
      if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) device = -1;
      driver().cuCtxPopCurrent_v2(&popped);
    }
  }
  CUresult result = CUDA_SUCCESS;
  const swap::Made made = swap::made_context(context);
  // After a fault the driver answers each question with that.
  if (device < 0 && made.id != 0) device = made.lane;
  // One that isn't noted owns nothing, and is not the primary one: the driver refuses to end that.
  const std::uint64_t owner = made.id != 0 ? made.id : UINT64_MAX;
  {
    const gate::Waiting waiting(gate::attentive(lane_of_device(device)), gate::Waiting::kEnd);
    const gate::Ending ending(device, owner);
    const swap::mover::Standstill standstill;
    swap::pooled::context_ends(made.id);
    result = original(context);
    if (result != CUDA_SUCCESS) ending.lives_on();
    if (result == CUDA_SUCCESS) memory::context_gone(context, made);  // nor may the mover find it
  }
  forget_lane();
  if (result != CUDA_SUCCESS) return result;
  work_gone(device, owner);
  pools::settle_all();
  if (device >= 0) contexts_changed(device, -1);
  return result;
}

}  // namespace switchyard::shim::rules
