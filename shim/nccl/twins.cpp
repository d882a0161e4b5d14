#include "shim/nccl/twins.h"

#include <stdlib.h>
#include <string.h>

#include "shim/client/process.h"
#include "shim/log.h"
#include "shim/nccl/norms.h"
#include "shim/nccl/registrations.h"
#include "shim/reset.h"

namespace switchyard::shim::nccl::twins {

std::atomic<std::uint32_t> g_count{0};
std::atomic<ncclComm_t> g_twin[abi::kMostCommunicators];
std::atomic<unsigned> g_other[abi::kMostCommunicators];

namespace {

using namespace agreement;

// How far a communicator has come on its way to a twin.
struct Making {
  Expected* expected;
  int slot = -1;
  int rank = 0;
  int ranks = 0;
  bool yes = false;
  ncclComm_t twin = nullptr;
  int twin_slot = -1;

  Board& board() const { return *expected->birth.board; }
};

struct State {
  // By slot: its configuration forbids twins, also those of children that inherit it.
  std::atomic<bool> unfit[abi::kMostCommunicators];
};
constinit State g_state;

void forget() {
  g_count.store(0, std::memory_order_relaxed);
  // A child shall not copy what was never used.
  for (auto& twin : g_twin) {
    if (twin.load(std::memory_order_relaxed) != nullptr)
      twin.store(nullptr, std::memory_order_relaxed);
  }
  for (auto& other : g_other) {
    if (other.load(std::memory_order_relaxed) != 0) other.store(0, std::memory_order_relaxed);
  }
  renew(g_state);
}

bool is_set(const char* variable, const char* value) {
  const char* text = ::getenv(variable);
  return text != nullptr && ::strcmp(text, value) == 0;
}

// A communicator that doesn't block is not there yet when its call returns. One that shares its
// resources with its children can't be used beside them.
bool forbids(const ncclConfig_t& config) {
  return config.blocking == 0 || (config.size >= sizeof(ncclConfig_t) && config.splitShare == 1);
}

bool is_unfit(const ncclConfig_t* config, int parent) {
  if (is_set("NCCL_COMM_BLOCKING", "0") || is_set("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1")) {
    return true;
  }
  if (config != nullptr) return forbids(*config);
  return parent >= 0 && g_state.unfit[parent].load(std::memory_order_relaxed);
}

void pair_up(int original, int twin) {
  g_other[original].store(static_cast<unsigned>(twin) + 1, std::memory_order_relaxed);
  g_other[twin].store(static_cast<unsigned>(original) + 1, std::memory_order_relaxed);
}

void come_to_life(Making& making, const Calls& calls) {
  Expected& expected = *making.expected;
  if (expected.where == nullptr) return;
  making.slot = communicators::add(*expected.where, expected.birth);
  if (making.slot < 0) return;
  norms::born(making.slot, expected.birth.lane);
  g_state.unfit[making.slot].store(expected.birth.unfit, std::memory_order_relaxed);
  g_twin[making.slot].store(nullptr, std::memory_order_relaxed);
  g_other[making.slot].store(0, std::memory_order_relaxed);
  making.rank = expected.birth.rank;
  making.ranks = expected.birth.ranks;
  if (expected.birth.board == nullptr || making.ranks != 0 || !calls.complete()) return;
  if (calls.rank(*expected.where, &making.rank) == kNcclSuccess &&
      calls.ranks(*expected.where, &making.ranks) == kNcclSuccess) {
    communicators::learn(making.slot, making.rank, making.ranks);
  }
}

template <typename Each>
void each_at_a_board(Making* all, unsigned count, Each each) {
  for (unsigned i = 0; i < count; ++i) {
    if (all[i].expected->birth.board != nullptr) each(all[i]);
  }
}

// All votes, then all outcomes: one thread may have several ranks of one communicator.
void ask(Making* all, unsigned count, Question question) {
  each_at_a_board(all, count, [&](Making& each) {
    vote(each.board(), question, static_cast<unsigned>(each.ranks), each.yes);
  });
  each_at_a_board(all, count,
                  [&](Making& each) { each.yes = outcome(each.board(), question) && each.yes; });
}

bool watch(Making& each) {
  const Birth& original = each.expected->birth;
  each.twin_slot =
      communicators::add(each.twin, {twin_id(original.id), each.rank, each.ranks, original.lane});
  return each.twin_slot >= 0;
}

// One thread may have several ranks of one communicator: then in one group.
ncclResult_t split(Making* all, unsigned count, const Calls& calls) {
  unsigned makers = 0;
  each_at_a_board(all, count, [&](const Making& each) { makers += each.yes ? 1 : 0; });
  ncclResult_t result = makers > 1 ? calls.group_start() : kNcclSuccess;
  each_at_a_board(all, count, [&](Making& each) {
    if (!each.yes) return;
    const ncclResult_t called =
        calls.split(*each.expected->where, 0, each.rank, &each.twin, nullptr);
    if (called != kNcclSuccess) result = called;
  });
  const ncclResult_t ended = makers > 1 ? calls.group_end() : kNcclSuccess;
  if (ended != kNcclSuccess) result = ended;
  each_at_a_board(all, count, [&](Making& each) {
    each.yes = each.twin != nullptr && watch(each) && result == kNcclSuccess;
  });
  return result;
}

// NCCL, from 2.18 to about 2.28, raises the abort flag of the parent, too, when a split fails. Its
// kernels would end halfway, without an error. So the program is told that it could not be made.
void say_that_it_failed(ncclResult_t error) {
  static Once said;
  log_once(said, Level::kWarn,
           "a communicator is not usable: --urgent-collectives could not make a second one of it "
           "(NCCL's error %d), and NCCL may have ended both; try without the option",
           error);
}

void keep_or_abort(Making& each, const Calls& calls) {
  if (each.yes) {
    pair_up(each.slot, each.twin_slot);
    g_twin[each.slot].store(each.twin, std::memory_order_release);
    g_count.fetch_add(1, std::memory_order_relaxed);
    log_line(Level::kInfo, "a communicator of %d ranks has a twin: its reduce-scatters go there",
             each.ranks);
  } else if (each.twin != nullptr) {
    communicators::end(each.twin);
    calls.abort(each.twin);
  }
}

void say_why_not(const Making& each) {
  static Once said;
  log_once(said, Level::kWarn,
           "a communicator of %d ranks keeps its reduce-scatters (--urgent-collectives): %u of "
           "them take part; all must have the option, one monitor and one user",
           each.ranks, each.board().registered.load(std::memory_order_relaxed));
}

}  // namespace
SWITCHYARD_RESET(kState, forget);

void expect(Birth& birth, const ncclConfig_t* config, int parent) {
  if (birth.id == 0) return;
  if (!card_says_yes(page().card.text, "urgent_collectives")) return;
  birth.unfit = is_unfit(config, parent);
  if (birth.unfit) {
    static Once said;
    log_once(said, Level::kWarn,
             "a communicator keeps its reduce-scatters (--urgent-collectives): it does not block, "
             "or it shares its resources with its children");
    return;
  }
  if (birth.ranks != 1) birth.board = attend(birth.id);
}

void refuse(Birth& birth) {
  if (birth.board == nullptr) return;
  vote(*birth.board, kMake, 0, false);
  leave(birth.board, birth.id);
  birth.board = nullptr;
}

ncclResult_t settle(Expected* births, unsigned count, ncclResult_t result, const Calls& calls) {
  Making all[kMostExpected];
  for (unsigned i = 0; i < count; ++i) {
    all[i].expected = &births[i];
    come_to_life(all[i], calls);
  }
  bool any = false;
  each_at_a_board(all, count, [&](Making& each) {
    any = true;
    each.yes = result == kNcclSuccess && each.slot >= 0 && calls.complete() && each.ranks > 1 &&
               all_attend(each.board(), static_cast<unsigned>(each.ranks));
  });
  if (!any) return result;
  const Inside inside;
  ask(all, count, kMake);
  each_at_a_board(all, count, [&](Making& each) {
    if (!each.yes && each.ranks > 1) say_why_not(each);
  });
  const ncclResult_t made = split(all, count, calls);
  ask(all, count, kKeep);
  each_at_a_board(all, count, [&](Making& each) {
    keep_or_abort(each, calls);
    leave(each.expected->birth.board, each.expected->birth.id);
    each.expected->birth.board = nullptr;
  });
  if (made == kNcclSuccess) return result;
  say_that_it_failed(made);
  return made;
}

ncclComm_t take(ncclComm_t comm) {
  if (g_count.load(std::memory_order_relaxed) == 0) return nullptr;
  const int slot = communicators::find(comm);
  if (slot < 0) return nullptr;
  const ncclComm_t twin = g_twin[slot].exchange(nullptr, std::memory_order_acq_rel);
  if (twin == nullptr) return nullptr;
  g_count.fetch_sub(1, std::memory_order_relaxed);
  const unsigned there = g_other[slot].exchange(0, std::memory_order_relaxed);
  if (there != 0) g_other[there - 1].store(0, std::memory_order_relaxed);
  communicators::end(twin);
  registrations::drop(comm);
  return twin;
}

}  // namespace switchyard::shim::nccl::twins
