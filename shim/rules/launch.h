// Rules for work: kernels, graphs, copies and sets. Count it, and wake the monitor after idleness.
//
// Concept. This is the hot path: one thread-local read, one relaxed add into the page, one relaxed
// load. No getenv, no allocation, no lock, no system call, except for the one launch that finds the
// monitor's request to be woken.
//
// A launch into a stream that is being captured makes a graph node and runs nothing: it is not
// counted, so that launches = kernels that ran outside graphs. The driver is asked only while some
// stream of the process is in capture.
//
// Threading: any thread.
#pragma once

#include "shim/capture.h"
#include "shim/client/process.h"
#include "shim/driver.h"
#include "shim/memory/graph_memory.h"

namespace switchyard::shim::rules {

// The slow path of attention: does what the monitor asked for, once.
void attend(abi::Lane& lane);

inline void count(abi::Lane& lane, abi::Word64& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
  if (lane.attention.load(std::memory_order_relaxed) != 0) [[unlikely]]
    attend(lane);
}

inline void count_launch(CUstream stream, bool per_thread) {
  abi::Lane* lane = current_lane();
  if (lane != nullptr && !captured(stream, per_thread)) count(*lane, lane->launches);
}

template <typename Original, typename... Tail>
CUresult launch(Original original, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                unsigned by, unsigned bz, unsigned shared, CUstream stream, Tail... tail) {
  count_launch(stream, false);
  return original(f, gx, gy, gz, bx, by, bz, shared, stream, tail...);
}

template <typename Original, typename... Tail>
CUresult launch_per_thread(Original original, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                           unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream,
                           Tail... tail) {
  count_launch(stream, true);
  return original(f, gx, gy, gz, bx, by, bz, shared, stream, tail...);
}

template <typename Original>
CUresult launch_ex(Original original, const CUlaunchConfig* config, CUfunction f, void** params,
                   void** extra) {
  count_launch(config != nullptr ? config->hStream : nullptr, false);
  return original(config, f, params, extra);
}

template <typename Original>
CUresult launch_ex_per_thread(Original original, const CUlaunchConfig* config, CUfunction f,
                              void** params, void** extra) {
  count_launch(config != nullptr ? config->hStream : nullptr, true);
  return original(config, f, params, extra);
}

// The calls of CUDA 1 to 3, and launches over several devices: counted on the current one.
template <typename Original, typename... Args>
CUresult launch_plain(Original original, Args... args) {
  if (abi::Lane* lane = current_lane()) count(*lane, lane->launches);
  return original(args...);
}

template <typename Original>
CUresult graph_launch(Original original, CUgraphExec graph, CUstream stream) {
  abi::Lane* lane = current_lane();
  if (lane != nullptr && !captured(stream, false)) count(*lane, lane->graph_launches);
  return graph_memory::run(graph, [&] { return original(graph, stream); });
}

template <typename Original>
CUresult graph_launch_per_thread(Original original, CUgraphExec graph, CUstream stream) {
  abi::Lane* lane = current_lane();
  if (lane != nullptr && !captured(stream, true)) count(*lane, lane->graph_launches);
  return graph_memory::run(graph, [&] { return original(graph, stream); });
}

// Copies and sets, asynchronous or not: they keep a class active.
template <typename Original, typename... Args>
CUresult copy(Original original, Args... args) {
  if (abi::Lane* lane = current_lane()) count(*lane, lane->copies);
  return original(args...);
}

template <typename Original, typename... Args>
CUresult begin_capture(Original original, Args... args) {
  const CUresult result = original(args...);
  if (result == CUDA_SUCCESS) process().captures.fetch_add(1, std::memory_order_relaxed);
  return result;
}

// A capture ends once, also when it was invalidated; ending what isn't captured changes nothing.
template <typename Original>
CUresult end_capture(Original original, CUstream stream, CUgraph* graph) {
  const CUresult result = original(stream, graph);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
    std::uint32_t now = process().captures.load(std::memory_order_relaxed);
    while (now != 0 && !process().captures.compare_exchange_weak(now, now - 1)) {
    }
  }
  return result;
}

}  // namespace switchyard::shim::rules
