#include "shim/capture.h"

#include <pthread.h>

#include "shim/lock.h"
#include "shim/reset.h"

namespace switchyard::shim {
namespace {

CUresult ask(CUstream stream, bool per_thread, CUstreamCaptureStatus& status) {
  const auto call = per_thread ? driver().cuStreamIsCapturing_ptsz : driver().cuStreamIsCapturing;
  return call != nullptr ? call(stream, &status) : CUDA_SUCCESS;
}

// The handles of the default streams mean another stream in each thread.
struct Going {
  CUstream stream;
  pthread_t thread;
  int lane;
  std::uint64_t owner;
};

constexpr std::uint32_t kMost = 256;
struct State {
  Going going[kMost] = {};
  std::uint32_t count = 0;
  std::uint32_t unnoted = 0;  // beyond kMost
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

bool is_default(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool is_of(const Going& going, CUstream stream) {
  return going.stream == stream &&
         (!is_default(stream) || ::pthread_equal(going.thread, ::pthread_self()) != 0);
}

// Takes out those that `which` is true of, at most `most`. Answers how many. pre: g_state.lock is
// held.
template <typename Which>
std::uint32_t take_out(std::uint32_t most, Which which) {
  std::uint32_t taken = 0;
  for (std::uint32_t i = g_state.count; i-- != 0 && taken < most;) {
    if (!which(g_state.going[i])) continue;
    g_state.going[i] = g_state.going[--g_state.count];
    ++taken;
  }
  process().captures.fetch_sub(taken, std::memory_order_relaxed);
  return taken;
}

}  // namespace

namespace capture {

void begins(CUstream stream, int lane, std::uint64_t owner) {
  const Locked locked(g_state.lock);
  process().captures.fetch_add(1, std::memory_order_seq_cst);
  if (g_state.count == kMost) {
    ++g_state.unnoted;
  } else {
    g_state.going[g_state.count++] = {stream, ::pthread_self(), lane, owner};
  }
}

void ended(CUstream stream) {
  const Locked locked(g_state.lock);
  if (take_out(1, [&](const Going& going) { return is_of(going, stream); }) != 0) return;
  if (g_state.unnoted == 0) return;
  --g_state.unnoted;
  process().captures.fetch_sub(1, std::memory_order_relaxed);
}

StreamEnding::StreamEnding(CUstream stream) : stream_(stream) {
  if (process().captures.load(std::memory_order_relaxed) == 0) return;
  const Locked locked(g_state.lock);
  taken_ = take_out(kMost, [&](const Going& going) {
    if (!is_of(going, stream)) return false;
    lane_ = going.lane;
    owner_ = going.owner;
    return true;
  });
}

void StreamEnding::lives_on() const {
  for (std::uint32_t i = 0; i < taken_; ++i) begins(stream_, lane_, owner_);
}

void owner_gone(int lane, std::uint64_t owner) {
  if (process().captures.load(std::memory_order_relaxed) == 0) return;
  const Locked locked(g_state.lock);
  take_out(kMost, [&](const Going& going) { return going.lane == lane && going.owner == owner; });
}

void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace capture

bool is_captured(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask(stream, per_thread, status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool may_not_touch(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask(stream, per_thread, status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace switchyard::shim
