#include "shim/gate/spans.h"

#include "shim/capture.h"
#include "shim/client/records.h"
#include "shim/clock.h"
#include "shim/inside.h"
#include "shim/reset.h"

namespace switchyard::shim::spans {
namespace {

constexpr unsigned kTimers = 256;  // that may be on their way at once
constexpr std::uint32_t kMostLead = 4096;
// A call that takes longer has waited for something.
constexpr std::uint64_t kLongCallNs = 2'000'000;

struct Note {
  std::uint32_t what = 0;
  bool missed = false;   // something before it was not timed
  bool exposed = false;  // nothing is computed meanwhile
};

using Pool = timers::Pool<Note, kTimers>;
using Timer = Pool::Each;

// The stream with most of the votes wins, whatever the others have. A word that two threads change
// at once may lose a vote.
struct Vote {
  std::atomic<CUstream> stream{nullptr};
  std::atomic<std::uint32_t> lead{0};
};

struct Gpu {
  Pool pool;
  Vote vote;
  std::atomic<bool> missed{true};
  double began_ns = 0;  // the timing that was read last, under the pool's lock
};

struct State {
  Gpu gpus[abi::kMaxGpus];
};
constinit State g_state;

CUstream handle_of(CUstream stream, bool per_thread) {
  if (stream == CU_STREAM_LEGACY) return nullptr;
  return stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
}

std::uint32_t on_their_way() {
  std::uint32_t count = 0;
  const unsigned lanes = page().head.lane_count.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < lanes && i < abi::kMaxGpus; ++i) count += g_state.gpus[i].pool.count();
  return count;
}

// Whether the monitor allows one more.
bool allowed() {
  const std::uint32_t until = page().process.timing_until.load(std::memory_order_relaxed);
  const std::uint32_t used = page().process.timed.load(std::memory_order_relaxed) + on_their_way();
  return static_cast<std::int32_t>(until - used) > 0;
}

// Nothing is launched but collectives.
bool is_idle(unsigned lane) {
  return g_state.gpus[lane].vote.lead.load(std::memory_order_relaxed) == 0;
}

void mark(unsigned lane, abi::TimingMark mark) {
  records::timing(abi::timing_mark(lane, mark), 0, 0);
}

// pre: the pool's lock, for both.

CUresult tell(unsigned lane, const Timer& timer, const Timer* before) {
  Gpu& gpu = g_state.gpus[lane];
  const Driver& calls = driver();
  float took_ms = 0;
  float since_ms = 0;
  CUresult result = calls.cuEventElapsedTime(&took_ms, timer.before, timer.after);
  if (result == CUDA_SUCCESS && before != nullptr) {
    result = calls.cuEventElapsedTime(&since_ms, before->before, timer.before);
  }
  if (result != CUDA_SUCCESS) return result;
  if (timer.note.missed || before == nullptr) mark(lane, abi::TimingMark::kUntimed);
  gpu.began_ns += static_cast<double>(since_ms) * 1e6;
  const auto took_ns = static_cast<std::uint64_t>(took_ms < 0 ? 0 : took_ms * 1e6F);
  const auto began_us = static_cast<std::uint64_t>(static_cast<std::int64_t>(gpu.began_ns / 1000));
  records::timing(timer.note.what, began_us, took_ns);
  if (timer.note.exposed) {
    records::timing(abi::timing_mark(lane, abi::TimingMark::kStalled), began_us, took_ns);
  }
  return result;
}

void read(unsigned lane) {
  g_state.gpus[lane].pool.read(
      [&](const Timer& timer, const Timer* before) { return tell(lane, timer, before); });
}

timers::Running start(unsigned lane, CUstream stream, const Note& note) {
  Gpu& gpu = g_state.gpus[lane];
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent == nullptr || driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
      !gpu.pool.try_lock()) {
    return {};
  }
  read(lane);
  timers::Running running;
  // The events of the one before are still needed.
  Timer* timer = gpu.pool.count() + 1 < kTimers ? gpu.pool.take(context) : nullptr;
  if (timer != nullptr) running = gpu.pool.start(*timer, note, stream);
  const bool refused = gpu.pool.refused();
  gpu.pool.unlock();
  if (refused) mark(lane, abi::TimingMark::kRefused);
  gpu.pool.record_before(running);
  return running;
}

// Whether the GPU had nothing to do before what was launched, although the call took long.
bool waited(const timers::Running& running, std::uint64_t took_ns) {
  if (took_ns < kLongCallNs) return false;
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  return driver().cuEventQuery(running.before) != CUDA_ERROR_NOT_READY;
}

}  // namespace

void note_launch(unsigned lane, CUstream stream, bool per_thread) {
  const CUstream handle = handle_of(stream, per_thread);
  Vote& vote = g_state.gpus[lane].vote;
  const std::uint32_t lead = vote.lead.load(std::memory_order_relaxed);
  if (vote.stream.load(std::memory_order_relaxed) == handle) {
    if (lead < kMostLead) vote.lead.store(lead + 1, std::memory_order_relaxed);
  } else if (lead == 0) {
    vote.stream.store(handle, std::memory_order_relaxed);
    vote.lead.store(1, std::memory_order_relaxed);
  } else {
    vote.lead.store(lead - 1, std::memory_order_relaxed);
  }
}

bool is_busiest(unsigned lane, CUstream stream, bool per_thread) {
  return !is_idle(lane) && g_state.gpus[lane].vote.stream.load(std::memory_order_relaxed) ==
                               handle_of(stream, per_thread);
}

void miss(unsigned lane) { g_state.gpus[lane].missed.store(true, std::memory_order_relaxed); }

void graph(unsigned lane) {
  miss(lane);
  if (allowed()) mark(lane, abi::TimingMark::kGraph);
}

void Span::begin(unsigned lane, CUstream stream, bool per_thread, std::uint32_t what) {
  const Inside inside;
  if (!allowed() || untouchable(stream, per_thread)) return miss(lane);
  const bool collective = (what & abi::kLaunchRecord) == 0;
  const bool exposed = collective && (is_idle(lane) || is_busiest(lane, stream, per_thread));
  const bool missed = g_state.gpus[lane].missed.exchange(false, std::memory_order_relaxed);
  begun_.running = start(lane, handle_of(stream, per_thread), {what, missed, exposed});
  if (begun_.running.after == nullptr) return miss(lane);
  begun_.lane = lane;
  if (collective) begun_.began_ns = monotonic_ns();
}

void end(const Begun& begun, bool good) {
  if (begun.running.after == nullptr) return;
  const Inside inside;
  const bool counts =
      good && (begun.began_ns == 0 || !waited(begun.running, monotonic_ns() - begun.began_ns));
  g_state.gpus[begun.lane].pool.record_after(begun.running, counts);
}

void suspend(unsigned lane, std::uint64_t owner) { g_state.gpus[lane].pool.suspend(owner, true); }

void lives_on(unsigned lane, std::uint64_t owner) { g_state.gpus[lane].pool.suspend(owner, false); }

void context_gone(unsigned lane, std::uint64_t owner) {
  Gpu& gpu = g_state.gpus[lane];
  if (gpu.pool.context_gone(owner)) gpu.vote.lead.store(0, std::memory_order_relaxed);
}

void clear() {
  for (Gpu& gpu : g_state.gpus) {
    gpu.pool.clear();
    gpu.vote.lead.store(0, std::memory_order_relaxed);
    gpu.missed.store(true, std::memory_order_relaxed);
    gpu.began_ns = 0;
  }
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::spans
