// Rules for NCCL's calls: learn communicators, and count what is launched in them.
//
// Concept. A rule is a plain function whose first argument is the original, as in shim/rules. The
// original here is an object: it is called like the function, and it asks its own copy of NCCL for
// a communicator's rank and size (`ask`).
//
// An operation is counted before NCCL is called: the first ones connect the ranks, so the call may
// wait for others until they come. What NCCL refuses is taken back. A call in a group is counted
// when the outermost group ends, and one on a stream that is captured at each launch of the graph.
//
// Threading: any thread; NCCL itself wants the calls of one communicator one after the other.
#pragma once

#include <tuple>

#include "shim/capture.h"
#include "shim/nccl/cut.h"
#include "shim/nccl/graphs.h"

namespace switchyard::shim::nccl::rules {

// Whether NCCL took it: a communicator that doesn't block says "in progress".
inline bool taken(ncclResult_t result) {
  return result == kNcclSuccess || result == kNcclInProgress;
}

template <typename Original, typename... Args>
ncclResult_t inside(const Original& original, Args... args) {
  const Inside inside;
  return original(args...);
}

// --- communicators ---

// The GPU that the thread works on; -1: none of ours. NCCL has made its context current by now.
inline int current_gpu() {
  const abi::Lane* lane = current_lane();
  return lane != nullptr ? lane_index(lane) : -1;
}

// A communicator that NCCL has made, or makes when the group ends.
void born(ncclComm_t* where, const Birth& birth);

template <typename Original, typename... Config>
ncclResult_t init_rank(const Original& original, ncclComm_t* comm, int ranks, ncclUniqueId id,
                       int rank, Config... config) {
  const ncclResult_t result = inside(original, comm, ranks, id, rank, config...);
  if (taken(result) && t_nccl.inside == 0) born(comm, {id_of(&id, 1), rank, ranks, current_gpu()});
  return result;
}

template <typename Original>
ncclResult_t init_rank_scalable(const Original& original, ncclComm_t* comm, int ranks, int rank,
                                int ids, ncclUniqueId* id, ncclConfig_t* config) {
  const ncclResult_t result = inside(original, comm, ranks, rank, ids, id, config);
  if (taken(result) && t_nccl.inside == 0) {
    born(comm, {id_of(id, ids), rank, ranks, current_gpu()});
  }
  return result;
}

template <typename Original>
ncclResult_t init_all(const Original& original, ncclComm_t* comms, int devices, const int* device) {
  const ncclResult_t result = inside(original, comms, devices, device);
  if (!taken(result) || t_nccl.inside != 0) return result;
  const std::uint64_t id = own_id();
  for (int rank = 0; rank < devices; ++rank) {
    born(&comms[rank], {id, rank, devices, device != nullptr ? device[rank] : rank});
  }
  return result;
}

// A child's rank and size are NCCL's to tell, once it is made. All ranks of the parent must call,
// also those that get no child, so each of them counts the call.
template <typename Original>
ncclResult_t split(const Original& original, ncclComm_t comm, int color, int key, ncclComm_t* child,
                   ncclConfig_t* config) {
  const int slot = communicators::find(comm);
  const ncclResult_t result = inside(original, comm, color, key, child, config);
  if (t_nccl.inside != 0) return result;
  const std::uint64_t id =
      with_color(next_child(slot, Maker::kSplit), static_cast<unsigned>(color));
  if (taken(result) && slot >= 0 && color != kNcclSplitNoColor) {
    born(child, {id, 0, 0, communicators::lane(slot)});
  }
  return result;
}

// Those who are left out don't call.
template <typename Original>
ncclResult_t shrink(const Original& original, ncclComm_t comm, int* excluded, int count,
                    ncclComm_t* child, ncclConfig_t* config, int flags) {
  const int slot = communicators::find(comm);
  const ncclResult_t result = inside(original, comm, excluded, count, child, config, flags);
  if (t_nccl.inside != 0) return result;
  const std::uint64_t id = next_child(slot, Maker::kShrink);
  if (taken(result) && slot >= 0) born(child, {id, 0, 0, communicators::lane(slot)});
  return result;
}

// First the table: the handle may be another's as soon as NCCL has freed it.
template <typename Original>
ncclResult_t end(const Original& original, ncclComm_t comm) {
  if (t_nccl.inside == 0) communicators::end(comm);
  return inside(original, comm);
}

// --- groups ---

template <typename Original>
ncclResult_t group_start(const Original& original) {
  const ncclResult_t result = inside(original);
  if (t_nccl.inside == 0 && result == kNcclSuccess) ++t_nccl.groups;
  return result;
}

// Whether the group adds to the counts: not if it only sends and receives.
bool group_counts();
// What the group holds, once: counted, or taken back, or only forgotten.
void count_group();
void take_group_back();
void forget_group();
// The communicators that it made.
void group_born();
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
  count_group();
  const ncclResult_t result = original();
  end_group_norms(norms, result);
  if (!taken(result)) take_group_back();
  return result;
}

template <typename Original>
ncclResult_t group_end(const Original& original) {
  if (t_nccl.inside != 0) return original();
  const bool outermost = t_nccl.groups == 1;
  if (t_nccl.groups != 0) --t_nccl.groups;
  if (!outermost) return inside(original);
  const ncclResult_t result = t_nccl.any ? launch_group(original) : inside(original);
  if (taken(result)) group_born();
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
};

// What it adds to the counts of its communicator.
Step step_of(int slot, const Operation& operation);
void expect(int slot, const Step& step);
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
  const Step step = step_of(slot, operation);
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
    const Inside inside;
    const ncclResult_t result = call();
    if (taken(result)) {
      if (norms::may_be_gradient(sum)) expect_sum(sum);
      expect(slot, step);
    }
    return result;
  }
  const Launch launch(step.launched != 0);
  communicators::count(slot, step);
  const norms::Norm norm = norms::begin(sum, communicators::launched(slot));
  const ncclResult_t result = call();
  norms::end(norm, sum, result);
  if (!taken(result)) communicators::take_back(slot, step);
  return result;
}

// The last two arguments are always the communicator and the stream; of a send or receive the one
// before is the peer.
template <Collective kKind>
inline constexpr bool kIsSum =
    kKind == Collective::kAllReduce || kKind == Collective::kReduceScatter;

template <Collective kKind, typename Original, typename Call, typename... Tail>
ncclResult_t launch(const Original& original, const void* from, const void* to, std::size_t count,
                    ncclDataType_t type, Call call, Tail... tail) {
  const std::tuple<Tail...> all(tail...);
  constexpr std::size_t kTail = sizeof...(Tail);
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

// With one buffer.
template <Collective kKind, typename Original, typename Buffer, typename... Tail>
ncclResult_t operation(const Original& original, Buffer* buffer, std::size_t count,
                       ncclDataType_t type, int root, Tail... tail) {
  return launch<kKind>(
      original, nullptr, nullptr, count, type,
      [&] { return original(buffer, count, type, root, tail...); }, root, tail...);
}

}  // namespace switchyard::shim::nccl::rules
