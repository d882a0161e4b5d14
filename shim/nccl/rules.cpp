#include "shim/nccl/rules.h"

#include "shim/log.h"

namespace switchyard::shim::nccl {

__thread Thread t_nccl;

namespace rules {
namespace {

void come_to_life(ncclComm_t* where, const Birth& birth) {
  if (where == nullptr || *where == nullptr) return;
  communicators::add(*where, birth);
  if (const int slot = communicators::find(*where); slot >= 0) norms::born(slot, birth.lane);
}

template <typename Each>
void for_pending(Each each) {
  for (unsigned slot = 0; slot < abi::kMostCommunicators; ++slot) {
    if (!t_nccl.pending[slot].empty()) each(static_cast<int>(slot), t_nccl.pending[slot]);
  }
}

}  // namespace

void born(ncclComm_t* where, const Birth& birth) {
  if (t_nccl.groups == 0) {
    come_to_life(where, birth);
  } else if (t_nccl.expecting < kMostExpected) {
    t_nccl.expected[t_nccl.expecting++] = {where, birth};
  } else {
    log_line(Level::kInfo, "a communicator is not watched: its group makes more than %u",
             kMostExpected);
  }
}

void group_born() {
  for (unsigned i = 0; i < t_nccl.expecting; ++i) {
    come_to_life(t_nccl.expected[i].where, t_nccl.expected[i].birth);
  }
}

void expect(int slot, const Step& step) {
  if (step.empty()) return;
  t_nccl.pending[slot].add(step);
  t_nccl.any = true;
}

// Its number among those of its communicator, so before it is expected itself.
void expect_sum(const norms::Sum& sum) {
  const unsigned at = t_nccl.summing++;
  if (at >= kMostSums) return;
  t_nccl.sums[at] = sum;
  t_nccl.sums[at].ordinal = t_nccl.pending[sum.slot].launched + 1;
}

void begin_group_norms(GroupNorms& all) {
  if (t_nccl.summing > kMostSums) norms::pass_over(Unmeasured::kGroup);
  for (unsigned i = 0; i < t_nccl.summing && t_nccl.summing <= kMostSums; ++i) {
    const norms::Sum& sum = t_nccl.sums[i];
    all.norms[i] = norms::begin(sum, communicators::launched(sum.slot) + sum.ordinal);
  }
}

void end_group_norms(const GroupNorms& all, ncclResult_t answer) {
  for (unsigned i = 0; i < t_nccl.summing && t_nccl.summing <= kMostSums; ++i) {
    norms::end(all.norms[i], t_nccl.sums[i], answer);
  }
}

bool group_counts() {
  bool counts = false;
  for_pending([&](int, const Step& step) { counts = counts || step.launched != 0; });
  return counts;
}

void count_group() { for_pending(communicators::count); }

void take_group_back() { for_pending(communicators::take_back); }

void forget_group() {
  t_nccl.expecting = 0;
  if (!t_nccl.any) return;
  t_nccl.any = false;
  t_nccl.summing = 0;
  for (Step& step : t_nccl.pending) step = {};
}

Step step_of(int slot, const Operation& operation) {
  const auto ranks = static_cast<std::uint64_t>(communicators::ranks(slot));
  std::uint64_t bytes = operation.count * nccl_type_bytes(operation.type);
  switch (operation.kind) {
    // `count` is one rank's part.
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      bytes *= ranks;
      break;
    case Collective::kSend:
    case Collective::kReceive:
      // To itself: its peers have no part in it.
      if (operation.peer == communicators::rank(slot)) return {};
      break;
    default:
      break;
  }
  Step step;
  const bool apart = is_point_to_point(operation.kind) && ranks != 2;
  (apart ? step.sent : step.launched) = 1;
  step.bytes = step.last_bytes = bytes;
  step.last = operation.kind;
  step.kinds[static_cast<unsigned>(operation.kind)] = 1;
  return step;
}

norms::Sum sum_of(int slot, const Operation& operation) {
  const bool scattered = operation.kind == Collective::kReduceScatter;
  if (!scattered && operation.kind != Collective::kAllReduce) return {};
  const auto ranks = static_cast<std::size_t>(communicators::ranks(slot));
  norms::Sum sum;
  sum.slot = slot;
  sum.scattered = scattered;
  sum.from = operation.from;
  sum.to = operation.to;
  sum.sent = scattered ? operation.count * ranks : operation.count;
  sum.received = operation.count;
  sum.type = operation.type;
  sum.op = operation.op;
  sum.stream = operation.stream;
  return sum;
}

}  // namespace rules
}  // namespace switchyard::shim::nccl
