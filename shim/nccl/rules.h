// Rules for NCCL's calls: learn communicators, and count what is launched in them.
//
// Concept. A rule is a plain function whose first argument is the original, as in shim/rules. The
// original here is an object that is called like the function. It asks its own copy of NCCL for a
// communicator's rank and size (`ask`), or makes twins by it (`calls`).
//
// An operation is counted before NCCL is called: the first ones connect the ranks, so the call may
// wait for others until they come. An operation that NCCL refuses is taken back. A call in a group
// is counted when the outermost group ends. A call on a stream that is captured is counted at each
// launch of the graph.
//
// While the monitor wants it, events stand before and behind what is launched (gate/spans.h).
//
// Threading: any thread; NCCL itself wants the calls of one communicator one after the other.
#pragma once

#include <tuple>

#include "shim/capture.h"
#include "shim/gate/spans.h"
#include "shim/nccl/communicator_rules.h"
#include "shim/nccl/cut.h"
#include "shim/nccl/graphs.h"

namespace switchyard::shim::nccl::rules {

// Behind the call of NCCL that launches what is timed.
void timed(const spans::Span& span, ncclComm_t comm, ncclResult_t result);

// --- groups ---

template <typename Original>
ncclResult_t group_start(const Original& original) {
  const ncclResult_t result = inside(original);
  if (t_nccl.inside == 0 && result == kNcclSuccess) ++t_nccl.groups;
  return result;
}

// Whether the group adds to the counts: not if it only sends and receives.
bool group_counts();
// The one that all of its operations are of; null: they are of several.
ncclComm_t group_communicator();
// What the group holds, once: counted (and timed, if it can be), or taken back, or only forgotten.
void count_group(spans::Span& span);
void take_group_back();
void forget_group();
// Its sums that may be gradients: what they send, and what they have received.
struct GroupNorms {
  norms::Norm norms[kMostSums];
};
void begin_group_norms(GroupNorms& all);
void end_group_norms(const GroupNorms& all, ncclResult_t answer);

template <typename Original>
ncclResult_t launch_group(const Original& original) {
  const Launch launch(group_counts());
  GroupNorms norms;
  begin_group_norms(norms);
  spans::Span span;
  count_group(span);
  group_streams::join();
  const ncclResult_t result = original();
  timed(span, group_communicator(), result);
  end_group_norms(norms, result);
  if (taken(result)) {
    group_streams::join();
  } else {
    take_group_back();
  }
  return result;
}

template <typename Original>
ncclResult_t group_end(const Original& original) {
  if (t_nccl.inside != 0) return original();
  const bool outermost = t_nccl.groups == 1;
  if (t_nccl.groups != 0) --t_nccl.groups;
  if (!outermost) return inside(original);
  const bool launches = t_nccl.group != nullptr && t_nccl.group->any;
  ncclResult_t result = launches ? launch_group(original) : inside(original);
  registrations::settle(result);
  if (taken(result)) result = settle_births(result, original.calls());
  forget_group();
  return result;
}

// Ends a group and launches nothing of it.
template <typename Original>
ncclResult_t group_simulate_end(const Original& original, ncclSimInfo_t* info) {
  const ncclResult_t result = inside(original, info);
  if (t_nccl.inside == 0 && t_nccl.groups != 0 && --t_nccl.groups == 0) forget_group();
  return result;
}

// --- operations ---

struct Operation {
  Collective kind;
  std::size_t count;
  ncclDataType_t type;
  int peer;  // of a send or receive
  ncclComm_t comm;
  CUstream stream;
  // Of one that reduces from a buffer into another, else null.
  const void* from = nullptr;
  const void* to = nullptr;
  ncclRedOp_t op = 0;
  bool one_sided = false;  // several may be awaited by one
};

// What it adds to the counts of its communicator.
CountStep step_of(int slot, const Operation& operation);
void expect(int slot, const CountStep& step, CUstream stream);
// Before it is launched: `launched` are, with these.
void time_it(spans::Span& span, int slot, const CountStep& step, std::uint64_t launched,
             CUstream stream);
// The sum that it is, for its norms; of slot -1: it is none.
norms::Sum sum_of(int slot, const Operation& operation);
void expect_sum(const norms::Sum& sum);

template <typename Original, typename Call>
ncclResult_t launch(const Original& original, const Operation& operation, Call call) {
  if (t_nccl.inside != 0) return call();
  const int slot = communicators::find(operation.comm);
  if (slot < 0) {
    const Inside inside;
    return call();
  }
  if (communicators::ranks(slot) == 0) [[unlikely]] {
    int rank = 0;
    int ranks = 0;
    if (original.ask(operation.comm, rank, ranks)) communicators::learn(slot, rank, ranks);
  }
  const CountStep step = step_of(slot, operation);
  const norms::Sum sum = norms::on() ? sum_of(slot, operation) : norms::Sum{};
  if (captured(operation.stream, false)) {
    const CUgraph graph = graphs::captured_into(operation.stream);
    const Inside inside;
    const ncclResult_t result = call();
    if (taken(result)) graphs::note(graph, slot, step);
    if (norms::may_be_gradient(sum)) norms::pass_over(Unmeasured::kGraph);
    return result;
  }
  if (t_nccl.groups != 0) {
    twins::stays(slot, operation.stream);
    const Inside inside;
    const ncclResult_t result = call();
    if (taken(result)) {
      if (norms::may_be_gradient(sum)) expect_sum(sum);
      expect(slot, step, operation.stream);
    }
    return result;
  }
  const Launch launch(step.launched != 0);
  const std::uint64_t launched = communicators::count(slot, step);
  const norms::Norm norm = norms::begin(sum, launched + twins::launched_in_other(slot));
  spans::Span span;
  time_it(span, slot, step, launched, operation.stream);
  const ncclResult_t result = call();
  timed(span, operation.comm, result);
  norms::end(norm, sum, result);
  if (!taken(result)) communicators::take_back(slot, step);
  return result;
}

template <Collective kKind>
inline constexpr bool kIsSum =
    kKind == Collective::kAllReduce || kKind == Collective::kReduceScatter;

// The last two arguments are always the communicator and the stream, but for a configuration. Of a
// send or receive the one before is the peer, and a sum's first is what is done to its elements.
template <Collective kKind, typename Original, typename Call, typename... Tail>
ncclResult_t launch(const Original& original, const void* from, const void* to, std::size_t count,
                    ncclDataType_t type, Call call, Tail... tail) {
  const std::tuple<Tail...> all(tail...);
  constexpr bool kConfigured = (std::is_same_v<Tail, const ncclCollConfig_t*> || ...);
  constexpr std::size_t kTail = sizeof...(Tail) - (kConfigured ? 1 : 0);
  Operation operation{kKind, count, type, -1, std::get<kTail - 2>(all), std::get<kTail - 1>(all)};
  if constexpr (is_point_to_point(kKind)) operation.peer = std::get<kTail - 3>(all);
  if constexpr (kIsSum<kKind>) operation.op = std::get<0>(all);
  operation.from = from;
  operation.to = to;
  return launch(original, operation, call);
}

// From one buffer into another.
template <Collective kKind, typename Original, typename... Tail>
ncclResult_t operation(const Original& original, const void* from, void* to, std::size_t count,
                       ncclDataType_t type, Tail... tail) {
  return launch<kKind>(
      original, from, to, count, type, [&] { return original(from, to, count, type, tail...); },
      tail...);
}

// Where all ranks have a twin of the communicator, it goes there.
template <typename Original, typename... Config>
ncclResult_t reduce_scatter(const Original& original, const void* from, void* to, std::size_t count,
                            ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream,
                            Config... config) {
  return operation<Collective::kReduceScatter>(original, from, to, count, type, op,
                                               twins::route(comm, op, stream), stream, config...);
}

// One-sided operations stay on the original: the windows are registered there.
template <typename Original>
ncclResult_t one_sided(const Original& original, Operation operation, auto... args) {
  operation.one_sided = true;
  return launch(original, operation, [&] { return original(args...); });
}
template <typename Original>
ncclResult_t put_signal(const Original& original, const void* from, std::size_t count,
                        ncclDataType_t type, int peer, void* window, std::size_t offset, int index,
                        int context, unsigned flags, ncclComm_t comm, CUstream stream) {
  return one_sided(original, {Collective::kSend, count, type, peer, comm, stream}, from, count,
                   type, peer, window, offset, index, context, flags, comm, stream);
}
template <typename Original>
ncclResult_t signal(const Original& original, int peer, int index, int context, unsigned flags,
                    ncclComm_t comm, CUstream stream) {
  return one_sided(original, {Collective::kSend, 0, kNcclInt8, peer, comm, stream}, peer, index,
                   context, flags, comm, stream);
}
template <typename Original>
ncclResult_t wait_signal(const Original& original, int count, ncclWaitSignalDesc_t* awaited,
                         ncclComm_t comm, CUstream stream) {
  return one_sided(original, {Collective::kReceive, 0, kNcclInt8, -1, comm, stream}, count, awaited,
                   comm, stream);
}

// With one buffer.
template <Collective kKind, typename Original, typename Buffer, typename... Tail>
ncclResult_t operation(const Original& original, Buffer* buffer, std::size_t count,
                       ncclDataType_t type, int root, Tail... tail) {
  return launch<kKind>(
      original, nullptr, nullptr, count, type,
      [&] { return original(buffer, count, type, root, tail...); }, root, tail...);
}

}  // namespace switchyard::shim::nccl::rules
