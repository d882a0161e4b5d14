// Rules for work: kernels, graphs, copies and sets. Count it, and let it through the gate.
//
// Concept. This is the hot path: one thread-local read, one relaxed add into the page, one relaxed
// load. No getenv, no allocation, no lock, no system call. Only while the monitor has something to
// say (a bit in `attention`), the launch goes through the gate (gate/gate.h). One bit asks for the
// times of waits alone (gate/bursts.h), and launches don't heed it. Another asks for a ring after
// so many launches: a few loads each. A third asks for records (client/records.h): a hash. A fourth
// asks which stream is the busiest (gate/spans.h): a few loads and a store.
// A fifth asks for faults (island/faults.h): one comparison.
//
// A launch into a stream that is being captured makes a graph node and runs nothing. It is not
// counted, so launches are the kernels that ran outside graphs. The driver is asked only while some
// stream of the process is in capture.
//
// Threading: any thread.
#pragma once

#include "shim/capture.h"
#include "shim/client/process.h"
#include "shim/client/records.h"
#include "shim/driver.h"
#include "shim/gate/gate.h"
#include "shim/gate/spans.h"
#include "shim/island/faults.h"
#include "shim/memory/context_memory.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"
#include "shim/nccl/graphs.h"
#include "shim/rules/arguments.h"
#include "shim/rules/copied.h"
#include "shim/rules/graph_memory.h"
#include "shim/swap/calls/allocate.h"

namespace switchyard::shim::rules {

// The monitor has something to say. On its own, so that a launch without it keeps its arguments in
// registers.
template <typename Call>
[[gnu::noinline]] CUresult pass_asked(abi::Lane& lane, std::uint32_t asked, CUstream stream,
                                      bool per_thread, gate::Work work, costs::Kernel what,
                                      Call call) {
  const auto note = [&] {
    gate::note_launch(lane);
    if (what.function == nullptr) return;
    if ((asked & abi::kRecordLaunches) != 0) {
      records::launch(what.function, what.x, what.y, what.z);
    }
    if ((asked & abi::kTimeCollectives) != 0 && nccl::t_nccl.inside == 0) {
      spans::note_launch(static_cast<unsigned>(lane_index(&lane)), stream, per_thread);
    }
  };
  constexpr std::uint32_t kOfOthers =
      gate::kOfBursts | abi::kRecordLaunches | abi::kTimeCollectives | abi::kTellFaults;
  if ((asked & ~kOfOthers) == 0) {
    note();
    return island::told(lane, call());
  }
  const gate::Passage passage(lane, stream, per_thread, work);
  note();
  return island::told(lane, call());
}

inline std::uint32_t asked_of(const abi::Lane& lane) {
  return lane.attention.load(std::memory_order_relaxed) & ~abi::kTimeBursts;
}

// Puts work on a stream by `call`, through the gate. `what`: what is launched, for the records; a
// null function: it is no launch.
template <typename Call>
CUresult pass(abi::Lane& lane, CUstream stream, bool per_thread, gate::Work work,
              costs::Kernel what, Call call) {
  const std::uint32_t asked = asked_of(lane);
  if (asked == 0) [[likely]]
    return call();
  return pass_asked(lane, asked, stream, per_thread, work, what, call);
}

// Work of a thread that has no context, or one on a GPU without a lane. The driver puts it by its
// stream or its kernel. No gate holds it, but it may touch memory that moves.
template <typename Original, typename... Args>
[[gnu::noinline]] CUresult put_anywhere(CUstream stream, bool per_thread, Original original,
                                        Args... args) {
  const swap::WorkGuard entry(swap::on() && !captured(stream, per_thread));
  return original(args...);
}

template <typename Original, typename... Args>
[[gnu::always_inline]] inline CUresult count_known(CUstream stream, bool per_thread,
                                                   costs::Kernel kernel, Original original,
                                                   Args... args) {
  abi::Lane* lane = current_lane();
  if (lane == nullptr) return put_anywhere(stream, per_thread, original, args...);
  if (captured(stream, per_thread)) return original(args...);
  lane->launches.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t asked = asked_of(*lane);
  if (asked == 0) [[likely]]
    return original(args...);
  return pass_asked(*lane, asked, stream, per_thread, {gate::WorkKind::kLaunch, kernel}, kernel,
                    [=] { return original(args...); });
}

// A kernel's first launch: what it makes the driver take is charged before (context_memory.h). On
// its own, as above.
template <typename Original, typename... Args>
[[gnu::noinline]] CUresult launch_first(CUstream stream, bool per_thread, costs::Kernel kernel,
                                        Original original, Args... args) {
  return context_memory::launch(
      kernel.function, [&] { return count_known(stream, per_thread, kernel, original, args...); });
}

template <typename Original, typename... Args>
[[gnu::always_inline]] inline CUresult count_launch(CUstream stream, bool per_thread,
                                                    costs::Kernel kernel, Original original,
                                                    Args... args) {
  if (context_memory::known(kernel.function)) [[likely]]
    return count_known(stream, per_thread, kernel, original, args...);
  return launch_first(stream, per_thread, kernel, original, args...);
}

// A kernel of a graph: its parameters are the last argument.
template <typename Original, typename... Args>
CUresult graph_kernel(Original original, Args... args) {
  const auto* parameters = std::get<sizeof...(Args) - 1>(std::tie(args...));
  const auto call = [&] { return original(args...); };
  if (parameters == nullptr) return call();
  const void* function = parameters->func;
  if constexpr (requires { parameters->kern; }) {
    if (function == nullptr) function = parameters->kern;
  }
  return context_memory::known(function) ? call() : context_memory::launch(function, call);
}

template <typename Original, typename... Tail>
[[gnu::always_inline]] inline CUresult launch(Original original, CUfunction f, unsigned gx,
                                              unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                              unsigned bz, unsigned shared, CUstream stream,
                                              Tail... tail) {
  return count_launch(stream, false, {f, gx, gy, gz}, original, f, gx, gy, gz, bx, by, bz, shared,
                      stream, tail...);
}

template <typename Original, typename... Tail>
[[gnu::always_inline]] inline CUresult launch_per_thread(Original original, CUfunction f,
                                                         unsigned gx, unsigned gy, unsigned gz,
                                                         unsigned bx, unsigned by, unsigned bz,
                                                         unsigned shared, CUstream stream,
                                                         Tail... tail) {
  return count_launch(stream, true, {f, gx, gy, gz}, original, f, gx, gy, gz, bx, by, bz, shared,
                      stream, tail...);
}

inline CUstream stream_of(const CUlaunchConfig* config) {
  return config != nullptr ? config->hStream : nullptr;
}

inline costs::Kernel kernel_of(const CUlaunchConfig* config, CUfunction f) {
  if (config == nullptr) return {};
  return {f, config->gridDimX, config->gridDimY, config->gridDimZ};
}

template <typename Original>
[[gnu::always_inline]] inline CUresult launch_ex(Original original, const CUlaunchConfig* config,
                                                 CUfunction f, void** params, void** extra) {
  return count_launch(stream_of(config), false, kernel_of(config, f), original, config, f, params,
                      extra);
}

template <typename Original>
[[gnu::always_inline]] inline CUresult launch_ex_per_thread(Original original,
                                                            const CUlaunchConfig* config,
                                                            CUfunction f, void** params,
                                                            void** extra) {
  return count_launch(stream_of(config), true, kernel_of(config, f), original, config, f, params,
                      extra);
}

// The calls of CUDA 1 to 3.
template <typename Original, typename... Args>
CUresult launch_plain(Original original, Args... args) {
  return count_launch(last_stream(args...), false, {}, original, args...);
}

// Work for several GPUs: counted on the current one, held by each one's gate.
template <typename Original, typename... Args>
CUresult launch_devices(Original original, Args... args) {
  if (abi::Lane* lane = current_lane()) {
    lane->launches.fetch_add(1, std::memory_order_relaxed);
    gate::hold_all();
  }
  const swap::WorkGuard entry(swap::on());
  return original(args...);
}

// A launch into a capture: the graph that is captured does what the launched one does.
template <typename Original>
CUresult embed_graph(Original original, CUgraphExec graph, CUstream stream) {
  const CUgraph into = nccl::graphs::any() ? nccl::graphs::captured_into(stream) : nullptr;
  const CUresult result = original(graph, stream);
  if (result == CUDA_SUCCESS && into != nullptr) nccl::graphs::copy(graph, into);
  return result;
}

template <typename Original>
CUresult put_graph(Original original, CUgraphExec graph, CUstream stream, bool per_thread) {
  const auto call = [=] { return original(graph, stream); };
  abi::Lane* lane = current_lane();
  if (lane == nullptr) {
    return graph_memory::run(graph, [&] { return put_anywhere(stream, per_thread, call); });
  }
  lane->graph_launches.fetch_add(1, std::memory_order_relaxed);
  // Its memory first: that may wait for the monitor, and nobody waits so long inside.
  return graph_memory::run(graph, [&] {
    return pass(*lane, stream, per_thread, {gate::WorkKind::kGraph, {}}, {graph}, call);
  });
}

template <typename Original>
CUresult run_graph(Original original, CUgraphExec graph, CUstream stream, bool per_thread) {
  if (captured(stream, per_thread)) {
    return graph_memory::run(graph, [&] { return embed_graph(original, graph, stream); });
  }
  return nccl::graphs::run(graph, [&] { return put_graph(original, graph, stream, per_thread); });
}

template <typename Original>
CUresult graph_launch(Original original, CUgraphExec graph, CUstream stream) {
  return run_graph(original, graph, stream, false);
}

template <typename Original>
CUresult graph_launch_per_thread(Original original, CUgraphExec graph, CUstream stream) {
  return run_graph(original, graph, stream, true);
}

// Stands in for SYNC_MEMOPS of memory that the driver does not know it of (rules/questions.h). A
// copy inside the device or a set need not wait by itself, though its call has no stream.
inline CUresult finish(bool per_thread) {
  const memory::Relaxed relaxed;
  return driver().cuStreamSynchronize(per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY);
}

// Copies and sets keep a class active. Those with a stream (always the last argument) are work for
// it; in the others the CPU waits.
// `to`: where they go, if that may be memory of the host.
template <Copied kCopied, typename Original, typename... Args>
CUresult count_copy(bool per_thread, const void* to, Original original, Args... args) {
  abi::Lane* lane = current_lane();
  if (lane == nullptr) {
    CUstream stream = nullptr;
    if constexpr (kHasStream<Args...>) stream = last_stream(args...);
    return put_anywhere(stream, per_thread, original, args...);
  }
  lane->copies.fetch_add(1, std::memory_order_relaxed);
  const auto call = [&] {
    const CUresult result = original(args...);
    if (result == CUDA_SUCCESS) count_bytes<kCopied>(*lane, per_thread, args...);
    return result;
  };
  if constexpr (kHasStream<Args...>) {
    return pass(*lane, last_stream(args...), per_thread, {gate::WorkKind::kLaunch, {}}, {}, [&] {
      const gate::Copying copying(*lane, to);
      return call();
    });
  } else {
    const gate::Waiting waiting(gate::Waiting::kContext);
    const swap::WorkGuard entry(swap::on());
    const CUresult result = island::told(*lane, call());
    return result == CUDA_SUCCESS && swap::any_syncs() ? finish(per_thread) : result;
  }
}

template <Copied kCopied = Copied::kUncounted, typename Original, typename... Args>
CUresult copy(Original original, Args... args) {
  return count_copy<kCopied>(false, nullptr, original, args...);
}

template <Copied kCopied = Copied::kUncounted, typename Original, typename... Args>
CUresult copy_per_thread(Original original, Args... args) {
  return count_copy<kCopied>(true, nullptr, original, args...);
}

// Those whose first argument may name memory of the host: cuMemcpy...ToH..., and cuMemcpyAsync.
template <Copied kCopied = Copied::kUncounted, typename Original, typename To, typename... Args>
CUresult copy_to(Original original, To to, Args... args) {
  return count_copy<kCopied>(false, reinterpret_cast<const void*>(to), original, to, args...);
}

template <Copied kCopied = Copied::kUncounted, typename Original, typename To, typename... Args>
CUresult copy_to_per_thread(Original original, To to, Args... args) {
  return count_copy<kCopied>(true, reinterpret_cast<const void*>(to), original, to, args...);
}

// Calls that touch memory in a stream's order and are neither work nor a copy.
template <typename Original, typename... Args>
CUresult touch(Original original, Args... args) {
  const swap::WorkGuard entry(swap::on());
  return original(args...);
}

// Calls in which the driver waits for the GPU, or may: what frees what kernels may still use.
template <typename Original, typename... Args>
CUresult wait(Original original, Args... args) {
  const gate::Waiting waiting(gate::Waiting::kContext);
  return original(args...);
}

// As above, of modules: their kernels' handles may be others' afterwards.
template <typename Original, typename... Args>
CUresult unload(Original original, Args... args) {
  context_memory::forget_kernels();
  const CUresult result = wait(original, args...);
  context_memory::forget_kernels();  // of a launch meanwhile
  return result;
}

template <typename Original>
CUresult unload_library(Original original, CUlibrary library) {
  context_memory::library_ends(library);
  return unload(original, library);
}

// A kernel without a context is asked about by other calls than a function.
template <typename Original, typename... Args>
CUresult get_kernel(Original original, CUkernel* kernel, CUlibrary library, Args... args) {
  const CUresult result = original(kernel, library, args...);
  if (result == CUDA_SUCCESS) context_memory::note_kernel(*kernel, library);
  return result;
}

template <typename Original>
CUresult list_kernels(Original original, CUkernel* kernels, unsigned count, CUlibrary library) {
  const CUresult result = original(kernels, count, library);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    if (kernels[i] != nullptr) context_memory::note_kernel(kernels[i], library);
  }
  return result;
}

// A stream waits for an event: the busiest one may then wait for a collective.
template <typename Original, typename... Args>
CUresult stream_waits(bool per_thread, Original original, CUstream stream, Args... args) {
  abi::Lane* lane = current_lane();
  spans::Span span;
  if (lane != nullptr && spans::wanted(*lane) && nccl::t_nccl.inside == 0) [[unlikely]] {
    const auto index = static_cast<unsigned>(lane_index(lane));
    if (spans::is_busiest(index, stream, per_thread)) {
      span.begin(index, stream, per_thread, abi::timing_mark(index, abi::TimingMark::kStalled));
    }
  }
  const CUresult result = original(stream, args...);
  span.end(result == CUDA_SUCCESS);
  return result;
}

template <typename Original, typename... Args>
CUresult stream_wait(Original original, Args... args) {
  return stream_waits(false, original, args...);
}

template <typename Original, typename... Args>
CUresult stream_wait_per_thread(Original original, Args... args) {
  return stream_waits(true, original, args...);
}

// Questions whether the GPU is done.
template <typename Original, typename... Args>
CUresult ask(Original original, Args... args) {
  if (abi::Lane* lane = gate::attentive_lane()) gate::asking(*lane);
  const CUresult result = original(args...);
  return result == CUDA_ERROR_NOT_READY ? result : island::told(result);
}

// A host function is no work of the GPU: it needs no wait of its own, it comes after the work that
// does. The work before it gets its number, because the CPU waits for the function to be called.
template <typename Original, typename... Args>
CUresult call_back(Original original, CUstream stream, Args... args) {
  if (abi::Lane* lane = gate::attentive_lane()) gate::before_callback(*lane, stream, false);
  return original(stream, args...);
}

template <typename Original, typename... Args>
CUresult call_back_per_thread(Original original, CUstream stream, Args... args) {
  if (abi::Lane* lane = gate::attentive_lane()) gate::before_callback(*lane, stream, true);
  return original(stream, args...);
}

// The driver waits for nothing here; the handle is gone afterwards.
template <typename Original>
CUresult stream_destroy(Original original, CUstream stream) {
  if (stream != nullptr) gate::forget(stream);
  const capture::StreamEnding ending(stream);
  const CUresult result = original(stream);
  if (result != CUDA_SUCCESS) ending.lives_on();
  return result;
}

template <typename Original, typename... Args>
CUresult begin_capture(Original original, CUstream stream, Args... args) {
  // Nothing can be put into the stream until the capture ends.
  if (abi::Lane* attentive = gate::attentive_lane()) gate::asking(*attentive);
  // Memory isn't moved during a capture, nor a capture begun while it is.
  const swap::WorkGuard entry(swap::on());
  // Raised before it begins: who asks in between leaves all streams alone.
  const abi::Lane* lane = current_lane();
  capture::begins(stream, lane != nullptr ? lane_index(lane) : -1, memory::current_owner());
  swap::let_questions_begin();
  const CUresult result = original(stream, args...);
  if (result != CUDA_SUCCESS) capture::ended(stream);
  return result;
}

// A capture ends once, also when it was invalidated; ending what isn't captured changes nothing.
template <typename Original>
CUresult end_capture(Original original, CUstream stream, CUgraph* graph) {
  const CUgraph into = nccl::graphs::any() ? nccl::graphs::captured_into(stream) : nullptr;
  const CUresult result = original(stream, graph);
  if (result != CUDA_SUCCESS && into != nullptr) nccl::graphs::gone(into);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
    capture::ended(stream);
  }
  return result;
}

}  // namespace switchyard::shim::rules
