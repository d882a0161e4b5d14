#include "shim/nccl/rules.h"

#include "shim/log.h"

namespace switchyard::shim::nccl::rules {
namespace {

template <typename Each>
void for_pending(Each each) {
  if (t_nccl.group != nullptr) t_nccl.group->pending.for_each(each);
}

// The sums that are measured, and where their norms go.
template <typename Each>
void for_sums(Each each) {
  const Group* const group = t_nccl.group;
  if (group == nullptr || group->summing > kMostSums) return;
  for (unsigned i = 0; i < group->summing; ++i) each(group->sums[i], i);
}

}  // namespace

void born(ncclComm_t* where, Birth birth) {
  ++t_nccl.expecting;
  Group* const holder = group();
  if (holder != nullptr && holder->births < kMostExpected) {
    holder->expected[holder->births++] = {where, birth};
  } else {
    twins::refuse(birth);
  }
}

ncclResult_t settle_births(ncclResult_t result, const Calls& calls) {
  Group* const group = t_nccl.group;
  const unsigned noted = group != nullptr ? group->births : 0;
  const ncclResult_t settled =
      noted != 0 ? twins::settle(group->expected, noted, result, calls) : result;
  for (unsigned i = noted; i < t_nccl.expecting; ++i) communicators::add(nullptr, {});
  t_nccl.expecting = 0;
  if (group != nullptr) group->births = 0;
  if (t_nccl.groups == 0) end_group();
  return settled;
}

void forget_births(unsigned first) {
  Group* const group = t_nccl.group;
  while (t_nccl.expecting > first) {
    --t_nccl.expecting;
    if (group == nullptr || group->births <= t_nccl.expecting) continue;
    twins::refuse(group->expected[--group->births].birth);
  }
}

void say_left() {
  static Once said;
  log_once(said, Level::kWarn,
           "NCCL does not end the second communicator of one that has ended "
           "(--urgent-collectives): it is left alone");
}

void expect(int slot, const CountStep& step, CUstream stream) {
  Group* const holder = step.empty() ? nullptr : group();
  if (holder == nullptr) return;
  if (!holder->pending.add(slot, step)) return say_no_memory();
  const bool same = slot == holder->slot && stream == holder->only;
  holder->together = !holder->any || (holder->together && same);
  holder->slot = slot;
  holder->only = stream;
  holder->any = true;
}

// Its number among those of its communicator and its twin, so before it is expected itself.
void expect_sum(const norms::Sum& sum) {
  Group* const holder = group();
  if (holder == nullptr) return norms::pass_over(Unmeasured::kGroup);
  const unsigned at = holder->summing++;
  if (at >= kMostSums) return;
  holder->sums[at] = sum;
  const auto expected = [holder](int slot) {
    const CountStep* step = holder->pending.find(slot);
    return step != nullptr ? step->launched : 0;
  };
  holder->sums[at].ordinal = expected(sum.slot) + expected(twins::other(sum.slot)) + 1;
}

void begin_group_norms(GroupNorms& all) {
  if (t_nccl.group != nullptr && t_nccl.group->summing > kMostSums) {
    norms::pass_over(Unmeasured::kGroup);
  }
  for_sums([&](const norms::Sum& sum, unsigned i) {
    const std::uint64_t before =
        communicators::launched(sum.slot) + twins::launched_in_other(sum.slot);
    all.norms[i] = norms::begin(sum, before + sum.ordinal);
  });
}

void end_group_norms(const GroupNorms& all, ncclResult_t answer) {
  for_sums([&](const norms::Sum& sum, unsigned i) { norms::end(all.norms[i], sum, answer); });
}

bool group_counts() {
  bool counts = false;
  for_pending([&](int, const CountStep& step) { counts = counts || step.launched != 0; });
  return counts;
}

ncclComm_t group_communicator() {
  return t_nccl.group->together ? communicators::handle(t_nccl.group->slot) : nullptr;
}

void count_group(spans::Span& span) {
  for_pending([&](int slot, const CountStep& step) {
    const std::uint64_t launched = communicators::count(slot, step);
    if (t_nccl.group->together) {
      time_it(span, slot, step, launched, t_nccl.group->only);
    } else {
      spans::miss(static_cast<unsigned>(communicators::lane(slot)));
    }
  });
}

// A communicator of one rank moves nothing to others. NCCL wants its GPU to be the thread's.
void time_it(spans::Span& span, int slot, const CountStep& step, std::uint64_t launched,
             CUstream stream) {
  const auto lane = static_cast<unsigned>(communicators::lane(slot));
  if (!spans::wanted(page().lanes[lane]) || communicators::ranks(slot) == 1) return;
  if (current_gpu() != communicators::lane(slot)) return spans::miss(lane);
  span.begin(lane, stream, false,
             abi::collective_record(static_cast<unsigned>(slot),
                                    static_cast<std::uint32_t>(step.last), launched));
}

void take_group_back() { for_pending(communicators::take_back); }

void forget_group() {
  forget_births(0);
  end_group();
}

CountStep step_of(int slot, const Operation& operation) {
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
  CountStep step;
  const bool apart = operation.one_sided || (is_point_to_point(operation.kind) && ranks != 2);
  (apart ? step.sent : step.launched) = 1;
  step.bytes = step.last_bytes = bytes;
  step.last = operation.kind;
  step.kinds[static_cast<unsigned>(operation.kind)] = 1;
  step.kind_bytes[static_cast<unsigned>(operation.kind)] = bytes;
  return step;
}

void timed(const spans::Span& span, ncclComm_t comm, ncclResult_t result) {
  if (t_nccl.later != nullptr) {
    // It was not asked for in between.
    spans::end(t_nccl.begun, false);
    t_nccl.later = nullptr;
  }
  if (result != kNcclInProgress) return spans::end(span.pass_on(), result == kNcclSuccess);
  t_nccl.later = comm;
  t_nccl.begun = span.pass_on();
}

void launched_later(ncclComm_t comm, ncclResult_t state) {
  if (comm != t_nccl.later || comm == nullptr || state == kNcclInProgress) return;
  spans::end(t_nccl.begun, state == kNcclSuccess);
  t_nccl.later = nullptr;
}

norms::Sum sum_of(int slot, const Operation& operation) {
  const bool scattered = operation.kind == Collective::kReduceScatter;
  if (!scattered && operation.kind != Collective::kAllReduce) return {};
  const auto ranks = static_cast<std::size_t>(communicators::ranks(slot));
  norms::Sum sum;
  sum.slot = twins::original(slot);
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

}  // namespace switchyard::shim::nccl::rules
