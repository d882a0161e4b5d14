#include "shim/gate/gate.h"

#include "shim/capture.h"
#include "shim/client/client.h"
#include "shim/gate/hold.h"
#include "shim/gate/linger.h"
#include "shim/gate/spans.h"

namespace switchyard::shim::gate {
namespace {

unsigned index_of(const abi::Lane& lane) { return static_cast<unsigned>(lane_index(&lane)); }

bool has_lane(int device) { return device >= 0 && device < static_cast<int>(abi::kMaxGpus); }

bool closed(unsigned lane) {
  return page().gates[lane].closed.load(std::memory_order_relaxed) != 0;
}

// Batches that this thread left open would keep the monitor from seeing that the GPU is quiet.
void hold_here(unsigned lane) {
  if (!closed(lane)) return;
  numbers::settle(lane);
  hold(lane);
}

}  // namespace

void attend(abi::Lane& lane) {
  if ((lane.attention.load(std::memory_order_relaxed) & abi::kWakeMonitor) == 0) return;
  const std::uint32_t asked =
      lane.attention.fetch_and(~abi::kWakeMonitor, std::memory_order_relaxed);
  if ((asked & abi::kWakeMonitor) != 0) wake_monitor();
}

namespace {

// Whether anything may be put into the stream; sleeps while the gate is closed.
bool comes_to(abi::Lane& lane, CUstream stream, bool per_thread) {
  attend(lane);
  if (untouchable(stream, per_thread)) return false;
  hold_here(index_of(lane));
  return true;
}

}  // namespace

Passage::Passage(abi::Lane& lane, CUstream stream, bool per_thread, Work work)
    : may_touch_(comes_to(lane, stream, per_thread)), entry_(swap::on()) {
  if (!may_touch_) return;
  const unsigned index = index_of(lane);
  const std::uint32_t asked = lane.attention.load(std::memory_order_relaxed);
  if ((asked & (abi::kGateArmed | abi::kProgress)) == 0) return;
  view::View* view = view::usable(index);
  if (view == nullptr) return;
  piece_ = numbers::begin({index, stream, per_thread}, *view, work,
                          {(asked & abi::kGateArmed) != 0, (asked & abi::kLinger) != 0});
}

void Waiting::before(What what) {
  const unsigned lane = index_of(*lane_);
  const std::uint32_t asked = lane_->attention.load(std::memory_order_relaxed);
  gated_ = (asked & ~kNotTheGates) != 0;
  if (gated_) {
    if (what == kStream && (asked & abi::kLinger) != 0 && !closed(lane)) {
      linger::behind_latest(lane);
    }
    again_ = !numbers::settle(lane) && what != kEnd;
    hold(lane);
  }
  if ((asked & abi::kTimeBursts) == 0 || what == kEnd) return;
  began_ns_ = monotonic_ns();
  bursts::wait_begins(*lane_);
}

void Waiting::after() const {
  if (began_ns_ != 0) bursts::wait_ended(*lane_, began_ns_);
  if (!gated_) return;
  const unsigned lane = index_of(*lane_);
  numbers::look(lane);
  if (again_) numbers::settle(lane);  // there is room now
}

namespace {
// Memory that the driver does not know is pageable. We ask the driver, because there are a dozen
// calls by which a program gets pinned memory.
bool pageable(const void* to) {
  CUmemorytype type = {};
  return driver().cuPointerGetAttribute != nullptr &&
         driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        reinterpret_cast<CUdeviceptr>(to)) ==
             CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

void Copying::before(const void* to) {
  waits_ = to != nullptr && pageable(to);
  began_ns_ = monotonic_ns();
  if (waits_) bursts::wait_begins(lane_);
}

void Copying::after() const {
  if (waits_) {
    bursts::wait_ended(lane_, began_ns_);
  } else {
    bursts::copy_ended(lane_, began_ns_);
  }
}

void asking(abi::Lane& lane) {
  // Behind a closed gate the queue may be full, and a question never blocks.
  if (!closed(index_of(lane))) numbers::settle(index_of(lane));
}

void before_callback(abi::Lane& lane, CUstream stream, bool per_thread) {
  if (untouchable(stream, per_thread)) return;
  const numbers::StreamPlace named{index_of(lane), stream, per_thread};
  numbers::settle(index_of(lane), &named);
  hold(index_of(lane));
}

void hold_all() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) hold_here(lane);
}

Ending::Ending(int device, std::uint64_t owner) : device_(device), owner_(owner) {
  if (!has_lane(device)) return;
  const unsigned lane = static_cast<unsigned>(device);
  timing::suspend(lane, owner);
  spans::suspend(lane, owner);
  view_ = view::withdraw(lane, owner);
  if (view_ != nullptr) numbers::wait_for_others(*view_, lane, owner);
}

void Ending::lives_on() const {
  if (!has_lane(device_)) return;
  timing::lives_on(static_cast<unsigned>(device_), owner_);
  spans::lives_on(static_cast<unsigned>(device_), owner_);
}

void context_gone(int device, std::uint64_t owner) {
  if (!has_lane(device)) return;
  const unsigned lane = static_cast<unsigned>(device);
  linger::context_gone(lane, owner);
  numbers::context_gone(lane, owner);
  timing::context_gone(lane, owner);
  spans::context_gone(lane, owner);
  view::context_gone(lane, owner);
}

}  // namespace switchyard::shim::gate
