#include "shim/nccl/communicators.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/client/process.h"
#include "shim/client/records.h"
#include "shim/client/settings.h"
#include "shim/clock.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"

namespace switchyard::shim::nccl {
namespace communicators {
std::atomic<ncclComm_t> g_handles[abi::kMostCommunicators];
}
namespace {

// The truth of a slot, for the page may be replaced.
struct Truth {
  std::uint64_t id = 0;
  std::atomic<int> rank{0};
  std::atomic<int> ranks{0};
  std::atomic<int> lane{0};
  std::uint32_t children[2] = {};  // by Maker
  std::atomic<std::uint64_t> launched{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint32_t> sent{0};
};

struct State {
  Truth truths[abi::kMostCommunicators];
  std::uint32_t unwatched = 0;
  std::uint64_t own_ids = 0;
  std::atomic<std::uint32_t> kinds[abi::kMostCollectives] = {};
  std::atomic<std::uint64_t> kind_bytes[abi::kMostCollectives] = {};
  std::atomic<std::uint64_t> entered{0};
  std::atomic<std::uint64_t> left{0};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

void forget() {
  for (auto& handle : communicators::g_handles) handle.store(nullptr, std::memory_order_relaxed);
  renew(g_state);
}

// A bijection of 64 bits (splitmix64's).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Each word is added again behind the bijection, so that the result can't be computed backwards.
std::uint64_t absorb(std::uint64_t hash, std::uint64_t word) { return mix(hash ^ word) + word; }

std::uint64_t not_zero(std::uint64_t hash) { return hash != 0 ? hash : 1; }

template <typename Word, typename Value>
void raise(Word& word, Value to) {
  auto seen = word.load(std::memory_order_relaxed);
  while (seen < to && !word.compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
  }
}

void tell_counts(abi::Communicator& shown, const Truth& truth) {
  raise(shown.launched, truth.launched.load(std::memory_order_relaxed));
  raise(shown.bytes, truth.bytes.load(std::memory_order_relaxed));
  raise(shown.sent, truth.sent.load(std::memory_order_relaxed));
}

// Departures are told last, so that no thread seems to have left before it entered.
void tell_launches(abi::Page& shown) {
  raise(shown.entered, g_state.entered.load(std::memory_order_relaxed));
  raise(shown.left, g_state.left.load(std::memory_order_relaxed));
}

void tell_kind(abi::Page& shown, unsigned kind) {
  raise(shown.collectives[kind], g_state.kinds[kind].load(std::memory_order_relaxed));
  raise(shown.collective_bytes[kind], g_state.kind_bytes[kind].load(std::memory_order_relaxed));
}

void tell_place(abi::Communicator& shown, const Truth& truth) {
  shown.rank.store(static_cast<std::uint32_t>(truth.rank.load(std::memory_order_relaxed)),
                   std::memory_order_relaxed);
  shown.ranks.store(static_cast<std::uint32_t>(truth.ranks.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
}

}  // namespace
SWITCHYARD_RESET(kState, forget);

std::uint64_t id_of(const ncclUniqueId* ids, int count) {
  std::uint64_t hash = static_cast<std::uint64_t>(count);
  for (int i = 0; i < count; ++i) {
    for (std::size_t at = 0; at < kNcclUniqueIdBytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      ::memcpy(&word, ids[i].internal + at, sizeof(word));
      hash = absorb(hash, word);
    }
  }
  return not_zero(hash);
}

std::uint64_t next_child(int slot, Maker maker) {
  if (slot < 0) return 0;
  const Locked locked(g_state.lock);
  Truth& parent = g_state.truths[slot];
  const auto way = static_cast<std::uint64_t>(maker);
  return not_zero(absorb(absorb(parent.id, way), ++parent.children[way - 1]));
}

std::uint64_t with_color(std::uint64_t child, std::uint64_t color) {
  return child == 0 ? 0 : not_zero(absorb(child, color));
}

std::uint64_t own_id() {
  const Locked locked(g_state.lock);
  const auto process = static_cast<std::uint64_t>(::getpid());
  return not_zero(absorb(absorb(process, monotonic_ns()), ++g_state.own_ids));
}

namespace communicators {

namespace {
// pre: the lock is held.
int only_count(const char* why) {
  page().unwatched.store(++g_state.unwatched, std::memory_order_relaxed);
  log_line(Level::kInfo, "a communicator is not watched: %s", why);
  return -1;
}
}  // namespace

int add(ncclComm_t comm, const Birth& birth) {
  if (disabled()) return -1;
  begin_process();
  const Locked locked(g_state.lock);
  if (comm == nullptr) return only_count("its parent does not block, or its group makes too many");
  if (birth.lane < 0) return only_count("its GPU is not managed");
  if (birth.id == 0) return only_count("ncclCommGrow has made it, or its parent is not watched");
  unsigned slot = first_slot(comm);
  unsigned tried = 0;
  for (; tried < abi::kMostCommunicators; ++tried, slot = (slot + 1) % abi::kMostCommunicators) {
    const ncclComm_t there = g_handles[slot].load(std::memory_order_relaxed);
    if (there == nullptr || there == kGone) break;
  }
  if (tried == abi::kMostCommunicators) return only_count("as many as there is room for are");
  // Word by word: a thread at a cut may look at them all.
  Truth& truth = g_state.truths[slot];
  truth.launched.store(0, std::memory_order_relaxed);
  truth.bytes.store(0, std::memory_order_relaxed);
  truth.sent.store(0, std::memory_order_relaxed);
  for (std::uint32_t& count : truth.children) count = 0;
  truth.id = birth.id;
  truth.rank.store(birth.rank, std::memory_order_relaxed);
  truth.ranks.store(birth.ranks, std::memory_order_relaxed);
  truth.lane.store(birth.lane, std::memory_order_relaxed);
  abi::Communicator& shown = page().communicators[slot];
  shown.launched.store(0, std::memory_order_relaxed);
  shown.bytes.store(0, std::memory_order_relaxed);
  shown.sent.store(0, std::memory_order_relaxed);
  shown.last_kind.store(0, std::memory_order_relaxed);
  shown.last_bytes.store(0, std::memory_order_relaxed);
  shown.last_ns.store(0, std::memory_order_relaxed);
  // The monitor's words: what it asked of the slot's last communicator is not for this one.
  shown.target.store(0, std::memory_order_relaxed);
  page().norm_orders[slot].stride.store(0, std::memory_order_relaxed);
  shown.id.store(birth.id, std::memory_order_relaxed);
  tell_place(shown, truth);
  shown.use.store(static_cast<std::uint32_t>(birth.lane) + 1, std::memory_order_release);
  g_handles[slot].store(comm, std::memory_order_release);
  return static_cast<int>(slot);
}

void end(ncclComm_t comm) {
  if (comm == nullptr) return;
  const Locked locked(g_state.lock);
  const int slot = find(comm);
  if (slot >= 0) {
    page().communicators[slot].use.store(0, std::memory_order_release);
    g_handles[slot].store(kGone, std::memory_order_release);
  } else if (g_state.unwatched != 0) {
    page().unwatched.store(--g_state.unwatched, std::memory_order_relaxed);
  }
}

int ranks(int slot) { return g_state.truths[slot].ranks.load(std::memory_order_relaxed); }
int rank(int slot) { return g_state.truths[slot].rank.load(std::memory_order_relaxed); }
std::uint64_t launched(int slot) {
  return g_state.truths[slot].launched.load(std::memory_order_relaxed);
}
int lane(int slot) { return g_state.truths[slot].lane.load(std::memory_order_relaxed); }

std::uint64_t id(int slot) { return g_state.truths[slot].id; }

void learn(int slot, int rank, int ranks) {
  Truth& truth = g_state.truths[slot];
  truth.rank.store(rank, std::memory_order_relaxed);
  truth.ranks.store(ranks, std::memory_order_relaxed);
  tell_place(page().communicators[slot], truth);
}

bool at_targets() {
  for (unsigned slot = 0; slot < abi::kMostCommunicators; ++slot) {
    const ncclComm_t comm = g_handles[slot].load(std::memory_order_acquire);
    if (comm == nullptr || comm == kGone) continue;
    const auto launched =
        static_cast<std::uint32_t>(g_state.truths[slot].launched.load(std::memory_order_relaxed));
    const std::uint32_t target = page().communicators[slot].target.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(launched - target) < 0) return false;
  }
  return true;
}

// Before the look at Page::cut, which the monitor writes before it looks here: one of the two sees
// the other's.
void enter() {
  g_state.entered.fetch_add(1, std::memory_order_seq_cst);
  tell_launches(page());
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void leave() {
  g_state.left.fetch_add(1, std::memory_order_release);
  tell_launches(page());
}

std::uint64_t count(int slot, const CountStep& step) {
  Truth& truth = g_state.truths[slot];
  abi::Communicator& shown = page().communicators[slot];
  truth.bytes.fetch_add(step.bytes, std::memory_order_relaxed);
  if (step.sent != 0) truth.sent.fetch_add(step.sent, std::memory_order_relaxed);
  const std::uint64_t launched =
      truth.launched.fetch_add(step.launched, std::memory_order_relaxed) + step.launched;
  records::note(abi::collective_record(static_cast<unsigned>(slot),
                                       static_cast<std::uint32_t>(step.last), launched),
                step.last_bytes);
  page().launching_thread.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)),
                                std::memory_order_relaxed);
  shown.last_kind.store(static_cast<std::uint32_t>(step.last), std::memory_order_relaxed);
  shown.last_bytes.store(step.last_bytes, std::memory_order_relaxed);
  shown.last_ns.store(monotonic_ns(), std::memory_order_relaxed);
  tell_counts(shown, truth);
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) {
    if (step.kinds[kind] == 0) continue;
    g_state.kinds[kind].fetch_add(step.kinds[kind], std::memory_order_relaxed);
    g_state.kind_bytes[kind].fetch_add(step.kind_bytes[kind], std::memory_order_relaxed);
    tell_kind(page(), kind);
  }
  return launched;
}

// The only way down: NCCL has refused what was counted.
void take_back(int slot, const CountStep& step) {
  Truth& truth = g_state.truths[slot];
  abi::Communicator& shown = page().communicators[slot];
  shown.bytes.store(truth.bytes.fetch_sub(step.bytes, std::memory_order_relaxed) - step.bytes,
                    std::memory_order_relaxed);
  shown.sent.store(truth.sent.fetch_sub(step.sent, std::memory_order_relaxed) - step.sent,
                   std::memory_order_relaxed);
  shown.launched.store(
      truth.launched.fetch_sub(step.launched, std::memory_order_relaxed) - step.launched,
      std::memory_order_relaxed);
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) {
    if (step.kinds[kind] == 0) continue;
    const std::uint32_t before =
        g_state.kinds[kind].fetch_sub(step.kinds[kind], std::memory_order_relaxed);
    page().collectives[kind].store(before - step.kinds[kind], std::memory_order_relaxed);
    const std::uint64_t bytes =
        g_state.kind_bytes[kind].fetch_sub(step.kind_bytes[kind], std::memory_order_relaxed);
    page().collective_bytes[kind].store(bytes - step.kind_bytes[kind], std::memory_order_relaxed);
  }
}

void carry_over(abi::Page& fresh) {
  const Locked locked(g_state.lock);
  copy_word(fresh.unwatched, page().unwatched);
  copy_word(fresh.launching_thread, page().launching_thread);
  tell_launches(fresh);
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) tell_kind(fresh, kind);
  for (unsigned slot = 0; slot < abi::kMostCommunicators; ++slot) {
    const abi::Communicator& from = page().communicators[slot];
    abi::Communicator& to = fresh.communicators[slot];
    copy_word(to.id, from.id);
    copy_word(to.last_kind, from.last_kind);
    copy_word(to.last_bytes, from.last_bytes);
    copy_word(to.last_ns, from.last_ns);
    tell_place(to, g_state.truths[slot]);
    tell_counts(to, g_state.truths[slot]);
    copy_word(to.use, from.use);
  }
}

void tell() {
  const Locked locked(g_state.lock);
  tell_launches(page());
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) tell_kind(page(), kind);
  for (unsigned slot = 0; slot < abi::kMostCommunicators; ++slot) {
    const ncclComm_t comm = g_handles[slot].load(std::memory_order_relaxed);
    const Truth& truth = g_state.truths[slot];
    abi::Communicator& shown = page().communicators[slot];
    // A communicator that came to life or ended between the copy and the new page is wrong in it.
    if (comm == nullptr || comm == kGone) {
      shown.use.store(0, std::memory_order_release);
      continue;
    }
    shown.id.store(truth.id, std::memory_order_relaxed);
    tell_place(shown, truth);
    tell_counts(shown, truth);
    shown.use.store(static_cast<std::uint32_t>(lane(static_cast<int>(slot))) + 1,
                    std::memory_order_release);
  }
}

}  // namespace communicators
}  // namespace switchyard::shim::nccl
