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
std::atomic<unsigned> g_used{0};
Place g_places[kPlaces];
}  // namespace communicators
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

Truth g_truths[abi::kMostCommunicators];

struct State {
  std::uint32_t unwatched = 0;
  std::uint64_t own_ids = 0;
  std::atomic<std::uint32_t> kinds[abi::kMostCollectives] = {};
  std::atomic<std::uint64_t> kind_bytes[abi::kMostCollectives] = {};
  std::atomic<std::uint64_t> entered{0};
  std::atomic<std::uint64_t> left{0};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// Only what was used: a child shall not copy the rest. add() makes the truths anew.
void forget() {
  const unsigned used = communicators::g_used.exchange(0, std::memory_order_relaxed);
  for (unsigned slot = 0; slot < used; ++slot) {
    communicators::g_handles[slot].store(nullptr, std::memory_order_relaxed);
  }
  for (communicators::Place& place : communicators::g_places) {
    if (used == 0) break;
    if (place.comm.load(std::memory_order_relaxed) != nullptr) {
      place.comm.store(nullptr, std::memory_order_relaxed);
    }
  }
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
  raise(shown.process.entered, g_state.entered.load(std::memory_order_relaxed));
  raise(shown.process.left, g_state.left.load(std::memory_order_relaxed));
}

void tell_kind(abi::Page& shown, unsigned kind) {
  raise(shown.process.collectives[kind], g_state.kinds[kind].load(std::memory_order_relaxed));
  raise(shown.process.collective_bytes[kind],
        g_state.kind_bytes[kind].load(std::memory_order_relaxed));
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
  Truth& parent = g_truths[slot];
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
// pre: the lock is held, for all below.
int only_count(const char* why) {
  page().process.unwatched.store(++g_state.unwatched, std::memory_order_relaxed);
  log_line(Level::kInfo, "a communicator is not watched: %s", why);
  return -1;
}

// All slots are taken.
int count_beyond() {
  static Once said;
  log_once(said, Level::kWarn,
           "communicator %u of this process has no place, %u at most have: the process cannot be "
           "paused at a cut, swapped out or moved while it lives",
           abi::kMostCommunicators + g_state.unwatched + 1, abi::kMostCommunicators);
  return only_count("as many as there is room for are");
}

unsigned free_slot() {
  const unsigned used = g_used.load(std::memory_order_relaxed);
  unsigned slot = 0;
  while (slot < used && g_handles[slot].load(std::memory_order_relaxed) != nullptr) ++slot;
  return slot;
}

// Raised before the slot is used, here and in the page.
void use(unsigned slot) {
  if (slot >= g_used.load(std::memory_order_relaxed)) {
    g_used.store(slot + 1, std::memory_order_relaxed);
  }
  raise(page().process.communicators_used, g_used.load(std::memory_order_relaxed));
}

// Half of the places are free, or gone: there is one.
void put(ncclComm_t comm, unsigned slot) {
  unsigned place = first_place(comm);
  for (;; place = (place + 1) % kPlaces) {
    const ncclComm_t there = g_places[place].comm.load(std::memory_order_relaxed);
    if (there == nullptr || there == kGone) break;
  }
  g_places[place].slot.store(slot, std::memory_order_relaxed);
  g_places[place].comm.store(comm, std::memory_order_release);
}

// Whether the search for one that lives passes `place`.
bool is_passed(unsigned place) {
  for (unsigned behind = 1; behind < kPlaces; ++behind) {
    const unsigned at = (place + behind) % kPlaces;
    const ncclComm_t there = g_places[at].comm.load(std::memory_order_relaxed);
    if (there == nullptr) return false;
    const unsigned way = (at + kPlaces - first_place(there)) % kPlaces;
    if (there != kGone && way >= behind) return true;
  }
  return false;
}

// A place that no search has to pass is empty at once: else each one would pass all handles that
// ever were.
void take_out(Place& taken) {
  taken.comm.store(kGone, std::memory_order_release);
  auto at = static_cast<unsigned>(&taken - g_places);
  for (; g_places[at].comm.load(std::memory_order_relaxed) == kGone && !is_passed(at);
       at = (at + kPlaces - 1) % kPlaces) {
    g_places[at].comm.store(nullptr, std::memory_order_relaxed);
  }
}
}  // namespace

int add(ncclComm_t comm, const Birth& birth) {
  if (disabled()) return -1;
  begin_process();
  const Locked locked(g_state.lock);
  if (comm == nullptr) return only_count("its parent does not block, or its group makes too many");
  const bool managed = birth.lane >= 0 && birth.lane < static_cast<int>(abi::kMaxGpus);
  if (!managed) return only_count("its GPU is not managed");
  if (birth.id == 0) return only_count("ncclCommGrow has made it, or its parent is not watched");
  const unsigned slot = free_slot();
  if (slot == abi::kMostCommunicators) return count_beyond();
  use(slot);
  // Word by word: a thread at a cut may look at them all.
  Truth& truth = g_truths[slot];
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
  put(comm, slot);
  return static_cast<int>(slot);
}

void end(ncclComm_t comm) {
  if (comm == nullptr) return;
  const Locked locked(g_state.lock);
  if (Place* place = find_place(comm)) {
    const unsigned slot = place->slot.load(std::memory_order_relaxed);
    page().communicators[slot].use.store(0, std::memory_order_release);
    g_handles[slot].store(nullptr, std::memory_order_release);
    take_out(*place);
  } else if (g_state.unwatched != 0) {
    page().process.unwatched.store(--g_state.unwatched, std::memory_order_relaxed);
  }
}

int ranks(int slot) { return g_truths[slot].ranks.load(std::memory_order_relaxed); }
int rank(int slot) { return g_truths[slot].rank.load(std::memory_order_relaxed); }
std::uint64_t launched(int slot) { return g_truths[slot].launched.load(std::memory_order_relaxed); }
int lane(int slot) { return g_truths[slot].lane.load(std::memory_order_relaxed); }

std::uint64_t id(int slot) { return g_truths[slot].id; }

void learn(int slot, int rank, int ranks) {
  Truth& truth = g_truths[slot];
  truth.rank.store(rank, std::memory_order_relaxed);
  truth.ranks.store(ranks, std::memory_order_relaxed);
  tell_place(page().communicators[slot], truth);
}

bool at_targets() {
  const unsigned used = g_used.load(std::memory_order_relaxed);
  for (unsigned slot = 0; slot < used; ++slot) {
    if (g_handles[slot].load(std::memory_order_acquire) == nullptr) continue;
    const auto launched =
        static_cast<std::uint32_t>(g_truths[slot].launched.load(std::memory_order_relaxed));
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
  Truth& truth = g_truths[slot];
  abi::Communicator& shown = page().communicators[slot];
  truth.bytes.fetch_add(step.bytes, std::memory_order_relaxed);
  if (step.sent != 0) truth.sent.fetch_add(step.sent, std::memory_order_relaxed);
  const std::uint64_t launched =
      truth.launched.fetch_add(step.launched, std::memory_order_relaxed) + step.launched;
  records::note(abi::collective_record(static_cast<unsigned>(slot),
                                       static_cast<std::uint32_t>(step.last), launched),
                step.last_bytes);
  page().process.launching_thread.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)),
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
  Truth& truth = g_truths[slot];
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
    page().process.collectives[kind].store(before - step.kinds[kind], std::memory_order_relaxed);
    const std::uint64_t bytes =
        g_state.kind_bytes[kind].fetch_sub(step.kind_bytes[kind], std::memory_order_relaxed);
    page().process.collective_bytes[kind].store(bytes - step.kind_bytes[kind],
                                                std::memory_order_relaxed);
  }
}

void carry_over(abi::Page& fresh) {
  const Locked locked(g_state.lock);
  copy_word(fresh.process.unwatched, page().process.unwatched);
  copy_word(fresh.process.launching_thread, page().process.launching_thread);
  tell_launches(fresh);
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) tell_kind(fresh, kind);
  const unsigned used = g_used.load(std::memory_order_relaxed);
  fresh.process.communicators_used.store(used, std::memory_order_relaxed);
  for (unsigned slot = 0; slot < used; ++slot) {
    const abi::Communicator& from = page().communicators[slot];
    abi::Communicator& to = fresh.communicators[slot];
    copy_word(to.id, from.id);
    copy_word(to.last_kind, from.last_kind);
    copy_word(to.last_bytes, from.last_bytes);
    copy_word(to.last_ns, from.last_ns);
    tell_place(to, g_truths[slot]);
    tell_counts(to, g_truths[slot]);
    copy_word(to.use, from.use);
  }
}

void tell() {
  const Locked locked(g_state.lock);
  tell_launches(page());
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) tell_kind(page(), kind);
  const unsigned used = g_used.load(std::memory_order_relaxed);
  page().process.communicators_used.store(used, std::memory_order_release);
  for (unsigned slot = 0; slot < used; ++slot) {
    const ncclComm_t comm = g_handles[slot].load(std::memory_order_relaxed);
    const Truth& truth = g_truths[slot];
    abi::Communicator& shown = page().communicators[slot];
    // A communicator that came to life or ended between the copy and the new page is wrong in it.
    if (comm == nullptr) {
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
