#include "shim/memory/account.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/inside.h"
#include "shim/log.h"
#include "shim/no_cancel.h"
#include "shim/reset.h"
#include "shim/size_text.h"
#include "switchyard/card.h"

namespace switchyard::shim::account {
namespace {

constexpr std::uint64_t kSmallestPiece = 512;
constexpr std::uint64_t kLargePage = 2u << 20;
// Up to this size the pieces of a page lie so close that the gap behind the last counts for little.
constexpr std::uint64_t kLargestClosePiece = 512u << 10;
constexpr timespec kAskAgain = {0, 100 * 1000 * 1000};
// Where the room for it is on its way.
constexpr timespec kAskAgainSoon = {0, 5 * 1000 * 1000};
// Somebody else may take what was just granted to us. So often in a row, it is not chance.
constexpr int kMostGrants = 64;

struct State {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

std::atomic<std::uint64_t>& used_of(const abi::Lane& lane) {
  return process().used_bytes[lane_index(&lane)];
}

std::atomic<std::uint64_t>& debt_of(const abi::Lane& lane) {
  return process().debt_bytes[lane_index(&lane)];
}

std::uint64_t up_to(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Takes up to `most` out of the credit; the monitor may be taking at the same time.
std::uint64_t take_credit(abi::Lane& lane, std::uint64_t least, std::uint64_t most) {
  std::uint64_t credit = lane.credit_bytes.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t taken = std::min(credit, most);
    if (taken < least || taken == 0) return 0;
    if (lane.credit_bytes.compare_exchange_weak(credit, credit - taken, std::memory_order_acq_rel,
                                                std::memory_order_relaxed)) {
      return taken;
    }
  }
}

// pre: Frozen.
void pay_debt(abi::Lane& lane) {
  const std::uint64_t debt = debt_of(lane).load(std::memory_order_relaxed);
  if (debt != 0) debt_of(lane).fetch_sub(take_credit(lane, 0, debt), std::memory_order_relaxed);
}

// pre: Frozen.
void publish(abi::Lane& lane) {
  const std::uint64_t used = used_of(lane).load(std::memory_order_relaxed);
  lane.used_bytes.store(used, std::memory_order_relaxed);
  if (used > lane.peak_bytes.load(std::memory_order_relaxed)) {
    lane.peak_bytes.store(used, std::memory_order_relaxed);
  }
}

// pre: Frozen.
void add_used(abi::Lane& lane, std::uint64_t bytes, std::uint64_t debt) {
  used_of(lane).fetch_add(bytes, std::memory_order_relaxed);
  debt_of(lane).fetch_add(debt, std::memory_order_relaxed);
  publish(lane);
}

bool take_for(abi::Lane& lane, std::uint64_t bytes) {
  Frozen frozen;
  pay_debt(lane);
  if (take_credit(lane, bytes, bytes) != bytes) return false;
  add_used(lane, bytes, 0);
  return true;
}

// Nobody to ask: the last quota holds, and without one there is nothing to hold to.
bool take_unattended(abi::Lane& lane, std::uint64_t bytes) {
  Frozen frozen;
  pay_debt(lane);
  const std::uint64_t quota = lane.quota_bytes.load(std::memory_order_relaxed);
  if (quota != 0) {
    const std::uint64_t taken = used_of(lane).load(std::memory_order_relaxed) +
                                lane.others_used_bytes.load(std::memory_order_relaxed);
    if (taken > quota || bytes > quota - taken) return false;
  }
  add_used(lane, bytes, bytes - take_credit(lane, 0, bytes));
  return true;
}

// Asks the monitor for credit. False when there is nobody to ask.
bool ask(abi::Lane& lane, std::uint64_t bytes, wire::Charged& answer) {
  if (process().joined.load(std::memory_order_acquire) == 0) return false;
  const std::uint64_t debt = debt_of(lane).load(std::memory_order_relaxed);
  return request(wire::kCharge, lane_index(&lane), bytes + debt, answer);
}

}  // namespace

std::uint64_t rounded(std::uint64_t bytes) {
  if (bytes > UINT64_MAX - kLargePage) return bytes;
  if (bytes >= kLargePage) return up_to(bytes, kLargePage);
  const std::uint64_t piece = up_to(bytes, kSmallestPiece);
  if (piece <= kLargestClosePiece) return piece;
  const std::uint64_t in_a_page = kLargePage / piece;  // 3, 2 or 1
  return up_to((kLargePage + in_a_page - 1) / in_a_page, kSmallestPiece);
}

CUresult refuse(abi::Lane* lane, std::uint64_t bytes, std::uint32_t lacks) {
  if (lane == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  lane->refusals.fetch_add(1, std::memory_order_relaxed);
  const auto size = [](const abi::Word64& word) {
    return size_text(word.load(std::memory_order_relaxed));
  };
  const SizeText asked = size_text(bytes), here = size(used_of(*lane)),
                 rest = size(lane->others_used_bytes), quota = size(lane->quota_bytes);
  const int gpu = lane_index(lane);
  if (lacks == wire::kHostPoolLacks) {
    log_line(Level::kWarn, "refused %s on GPU %d: %s used here; the host pool is too small for it",
             asked.text, gpu, here.text);
    log_line(Level::kWarn,
             "end another job that takes turns, or start a larger 'switchyardd --host-pool SIZE'");
  } else if (lane->quota_bytes.load(std::memory_order_relaxed) != 0) {
    log_line(Level::kWarn, "refused %s on GPU %d: %s used here, %s more by its job, quota %s",
             asked.text, gpu, here.text, rest.text, quota.text);
    // The quota may be a cap of root's, so more is not promised.
    log_line(Level::kWarn,
             "free some, or 'switchyard set NAME --memory SIZE', as far as root allows");
  } else {
    log_line(Level::kWarn,
             "refused %s on GPU %d: %s used here, %s more by its job, no more is free", asked.text,
             gpu, here.text, rest.text);
    log_line(Level::kWarn, "'switchyard ps' says who has it: end another job%s",
             card_says_yes(page().card.text, "oversubscribe")
                 ? ", for what can't be swapped out leaves too little"
                 : ", or start them with --oversubscribe");
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult reserve(abi::Lane* lane, std::uint64_t bytes, Reclaim reclaim) {
  if (lane == nullptr || bytes == 0) return CUDA_SUCCESS;
  int grants = 0;
  while (!take_for(*lane, bytes)) {
    wire::Charged answer{};
    const bool answered = ask(*lane, bytes, answer);
    if (answered && answer.verdict == wire::kGranted && ++grants < kMostGrants) continue;
    if (!answered && take_unattended(*lane, bytes)) return CUDA_SUCCESS;
    if (reclaim != nullptr) {
      reclaim();
      reclaim = nullptr;
      continue;
    }
    // The monitor ends this wait by its verdict; a monitor that goes away ends it too.
    if (!answered || answer.verdict != wire::kWait) return refuse(lane, bytes, answer.lacks);
    const Outside outside;
    const NoCancel none;
    ::nanosleep(answer.lacks == wire::kParkedMakesWay ? &kAskAgainSoon : &kAskAgain, nullptr);
  }
  return CUDA_SUCCESS;
}

void release(abi::Lane* lane, std::uint64_t bytes) {
  if (lane == nullptr || bytes == 0) return;
  Frozen frozen;
  const std::uint64_t debt = debt_of(*lane).load(std::memory_order_relaxed);
  const std::uint64_t paid = std::min(debt, bytes);
  debt_of(*lane).fetch_sub(paid, std::memory_order_relaxed);
  used_of(*lane).fetch_sub(bytes, std::memory_order_relaxed);
  lane->credit_bytes.fetch_add(bytes - paid, std::memory_order_acq_rel);
  publish(*lane);
}

bool charge(abi::Lane* lane, std::uint64_t bytes) {
  if (lane == nullptr || bytes == 0) return true;
  if (take_for(*lane, bytes)) return true;
  wire::Charged answer{};
  if (ask(*lane, bytes, answer) && answer.verdict == wire::kGranted && take_for(*lane, bytes)) {
    return true;
  }
  if (process().joined.load(std::memory_order_acquire) == 0 && take_unattended(*lane, bytes)) {
    return true;
  }
  Frozen frozen;
  add_used(*lane, bytes, bytes - take_credit(*lane, 0, bytes));
  return false;
}

std::uint64_t available_bytes(const abi::Lane& lane) {
  const std::uint64_t quota = lane.quota_bytes.load(std::memory_order_relaxed);
  if (process().joined.load(std::memory_order_acquire) == 0) {
    if (quota == 0) return UINT64_MAX;
    const std::uint64_t taken = used_of(lane).load(std::memory_order_relaxed) +
                                lane.others_used_bytes.load(std::memory_order_relaxed);
    return taken > quota ? 0 : quota - taken;
  }
  const std::uint64_t more = lane.available_bytes.load(std::memory_order_relaxed);
  const std::uint64_t credit = lane.credit_bytes.load(std::memory_order_relaxed);
  const std::uint64_t debt = debt_of(lane).load(std::memory_order_relaxed);
  const std::uint64_t all = more > UINT64_MAX - credit ? UINT64_MAX : more + credit;
  return debt > all ? 0 : all - debt;
}

Frozen::Frozen() : locked_(g_state.lock) {}

void carry_over(unsigned index, std::uint64_t told_bytes, abi::Lane& fresh) {
  const std::uint64_t used = process().used_bytes[index].load(std::memory_order_relaxed);
  std::uint64_t debt = 0;
  if (used >= told_bytes) {
    debt = used - told_bytes - take_credit(fresh, 0, used - told_bytes);
  } else {
    fresh.credit_bytes.fetch_add(told_bytes - used, std::memory_order_acq_rel);
  }
  process().debt_bytes[index].store(debt, std::memory_order_relaxed);
  fresh.used_bytes.store(used, std::memory_order_relaxed);
}

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::account
