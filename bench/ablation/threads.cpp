#include "bench/ablation/threads.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "bench/ablation/moves.h"
#include "bench/median.h"

namespace switchyard::bench::ablation {
namespace {

constexpr unsigned kDepth = 2;  // of a thread's copies, one in flight and one in the CPU's hands

// act(index of the thread), in as many threads at once, each with this thread's context.
template <typename Act>
double in_threads(unsigned count, Act act) {
  CUcontext context = nullptr;
  CU(cuCtxGetCurrent, &context);
  const std::int64_t begun = now_ns();
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < count; ++index) {
    threads.emplace_back([=] {
      CU(cuCtxSetCurrent, context);
      act(index);
    });
  }
  for (std::thread& each : threads) each.join();
  return ms_since(begun);
}

double pin_by(unsigned threads, Slabs& slabs, bool on) {
  return in_threads(threads, [&slabs, threads, on](unsigned index) {
    for (std::size_t slab = index; slab < slabs.count(); slab += threads) slabs.pin(slab, on);
  });
}

// A thread's own stream and pinned memory.
struct Stage {
  unsigned char* pinned[kDepth] = {};
  CUevent arrived[kDepth] = {};
  CUstream stream = nullptr;

  Stage() {
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < kDepth; ++i) {
      CU(cuMemHostAlloc, reinterpret_cast<void**>(&pinned[i]), kChunk, CU_MEMHOSTALLOC_PORTABLE);
      CU(cuEventCreate, &arrived[i], CU_EVENT_DISABLE_TIMING);
    }
  }
  ~Stage() {
    for (unsigned i = 0; i < kDepth; ++i) {
      CU(cuMemFreeHost, pinned[i]);
      CU(cuEventDestroy, arrived[i]);
    }
    CU(cuStreamDestroy, stream);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
};

// Every so many chunks are this thread's.
void copy_out(const Chunks& model, Slabs& slabs, Stage& stage, unsigned first, unsigned every) {
  const auto land = [&](unsigned at, unsigned place) {
    CU(cuEventSynchronize, stage.arrived[place]);
    std::memcpy(slabs.at(model.offset(at)), stage.pinned[place], model.bytes(at));
  };
  unsigned turn = 0;
  for (unsigned at = first; at < model.count(); at += every, ++turn) {
    const unsigned place = turn % kDepth;
    if (turn >= kDepth) land(at - kDepth * every, place);
    CU(cuMemcpyDtoHAsync, stage.pinned[place], model.address(at), model.bytes(at), stage.stream);
    CU(cuEventRecord, stage.arrived[place], stage.stream);
  }
  for (unsigned left = std::min(turn, kDepth); left > 0; --left) {
    land(first + (turn - left) * every, (turn - left) % kDepth);
  }
}

void copy_in(const Chunks& model, Slabs& slabs, Stage& stage, unsigned first, unsigned every) {
  unsigned turn = 0;
  for (unsigned at = first; at < model.count(); at += every, ++turn) {
    const unsigned place = turn % kDepth;
    if (turn >= kDepth) CU(cuEventSynchronize, stage.arrived[place]);
    std::memcpy(stage.pinned[place], slabs.at(model.offset(at)), model.bytes(at));
    CU(cuMemcpyHtoDAsync, model.address(at), stage.pinned[place], model.bytes(at), stage.stream);
    CU(cuEventRecord, stage.arrived[place], stage.stream);
  }
  CU(cuStreamSynchronize, stage.stream);
}

void print(const Chunks& model, const char* way, unsigned threads, const std::vector<double>& ms) {
  print_begin("threads", model.bytes(), std::string(way) + " by " + std::to_string(threads));
  std::printf(", \"ms\": %.1f, \"least_ms\": %.1f, \"most_ms\": %.1f}\n", median(ms),
              *std::min_element(ms.begin(), ms.end()), *std::max_element(ms.begin(), ms.end()));
}

// All of it from the device to pinned slabs, `kInFlight` copies at a time; `landed`: how many.
void copy_to_pinned(const Chunks& model, Slabs& slabs, std::atomic<unsigned>& landed) {
  constexpr unsigned kInFlight = 8;
  CUstream stream = nullptr;
  CUevent events[kInFlight];
  CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (CUevent& each : events) CU(cuEventCreate, &each, CU_EVENT_DISABLE_TIMING);
  for (unsigned at = 0; at < model.count() + kInFlight; ++at) {
    if (at >= kInFlight) {
      CU(cuEventSynchronize, events[at % kInFlight]);
      landed.store(at - kInFlight + 1, std::memory_order_release);
    }
    if (at >= model.count()) continue;
    const std::size_t offset = model.offset(at);
    CU(cuMemcpyDtoHAsync, slabs.at(offset), model.address(at), model.bytes(at), stream);
    CU(cuEventRecord, events[at % kInFlight], stream);
  }
  for (CUevent each : events) CU(cuEventDestroy, each);
  CU(cuStreamDestroy, stream);
}

// Each slab as soon as it has all its copies.
void unpin_behind(Slabs& slabs, const std::atomic<unsigned>& landed) {
  constexpr unsigned kOfSlab = kSlab / kChunk;
  for (unsigned slab = 0; slab < slabs.count(); ++slab) {
    while (landed.load(std::memory_order_acquire) < (slab + 1) * kOfSlab) std::this_thread::yield();
    slabs.pin(slab, false);
  }
}

void measure_overlap(int rounds, const Chunks& model, Slabs& slabs) {
  std::vector<double> alone, behind;
  for (int round = -1; round < rounds; ++round) {
    pin_by(1, slabs, true);
    std::atomic<unsigned> landed = 0;
    const double alone_ms = in_threads(1, [&](unsigned) { copy_to_pinned(model, slabs, landed); });
    landed = 0;
    const double behind_ms = in_threads(2, [&](unsigned index) {
      index == 0 ? copy_to_pinned(model, slabs, landed) : unpin_behind(slabs, landed);
    });
    if (round < 0) continue;
    alone.push_back(alone_ms);
    behind.push_back(behind_ms);
  }
  print(model, "out", 1, alone);
  print(model, "out, unpinned behind the copies,", 2, behind);
}

void measure_pins(int rounds, const Chunks& model, Slabs& slabs, unsigned threads) {
  std::vector<double> pins, unpins;
  for (int round = 0; round < rounds; ++round) {
    pins.push_back(pin_by(threads, slabs, true));
    unpins.push_back(pin_by(threads, slabs, false));
  }
  print(model, "pinned", threads, pins);
  print(model, "unpinned", threads, unpins);
}

void measure_copies(int rounds, const Chunks& model, Slabs& slabs, unsigned threads) {
  std::vector<Stage> stages(threads);
  std::vector<double> outs, ins;
  for (int round = -1; round < rounds; ++round) {
    const double out_ms = in_threads(
        threads, [&](unsigned index) { copy_out(model, slabs, stages[index], index, threads); });
    const double in_ms = in_threads(
        threads, [&](unsigned index) { copy_in(model, slabs, stages[index], index, threads); });
    if (round < 0) continue;
    outs.push_back(out_ms);
    ins.push_back(in_ms);
  }
  print(model, "out through pinned memory", threads, outs);
  print(model, "in through pinned memory", threads, ins);
}

}  // namespace

void measure_threads(int rounds, Chunks& model, Slabs& slabs) {
  slabs.pin_all(false);
  for (const unsigned threads : {1u, 2u, 4u, 8u}) measure_pins(rounds, model, slabs, threads);
  measure_overlap(rounds, model, slabs);
  for (const unsigned threads : {2u, 4u, 8u, 12u}) measure_copies(rounds, model, slabs, threads);
}

}  // namespace switchyard::bench::ablation
