#include "monitor/core/client_page.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <span>

#include "monitor/core/store_if_other.h"
#include "monitor/platform/receive.h"

namespace switchyard::monitor {
namespace {

constexpr std::uint32_t kMostGroups = 64;
constexpr std::uint32_t kMostThreads = 65'535;
// Threads of another process sleep on the word, so the futex is no private one.
void wake_all(abi::Word32& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

std::byte* ClientPage::absent(abi::SectionId id) const { return absent_[id].words; }

LaneReport ClientPage::report(unsigned at) const {
  const abi::Lane& from = lane(at);
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  LaneReport out;
  // Acquire: what is in force was stored before the sequence that covers it.
  out.slice_applied_seq = from.slice_applied_seq.load(std::memory_order_acquire);
  out.slice_status = get(from.slice_status);
  out.compute_slice_applied_us = get(from.compute_slice_applied_us);
  out.copy_slice_applied_us = get(from.copy_slice_applied_us);
  out.launches = get(from.launches);
  out.graph_launches = get(from.graph_launches);
  out.copies = get(from.copies);
  out.link_bytes = get(from.link_bytes);
  out.device_bytes = get(from.device_bytes);
  out.contexts = std::min(get(from.contexts), kMostGroups);
  out.compute_groups = std::min(get(from.compute_groups), kMostGroups);
  out.refusals = get(from.refusals);
  out.under_mps = get(from.under_mps) != 0;
  out.fault = get(from.fault);
  return out;
}

void ClientPage::set_quota(unsigned at, std::uint64_t quota_bytes) {
  lane(at).quota_bytes.store(quota_bytes, std::memory_order_relaxed);
}

void ClientPage::set_account(unsigned at, std::uint64_t others_used, std::uint64_t available) {
  lane(at).others_used_bytes.store(others_used, std::memory_order_relaxed);
  lane(at).available_bytes.store(available, std::memory_order_relaxed);
}

void ClientPage::write_slices(unsigned at, Slices slices, std::uint32_t seq) {
  abi::Lane& to = lane(at);
  to.compute_slice_us.store(slices.compute_us, std::memory_order_relaxed);
  to.copy_slice_us.store(slices.copy_us, std::memory_order_relaxed);
  to.slice_seq.store(seq, std::memory_order_release);
  ring();
}

void ClientPage::ask_to_wake(unsigned at) {
  lane(at).attention.fetch_or(abi::kWakeMonitor, std::memory_order_relaxed);
}

void ClientPage::ask_for_faults(unsigned at) {
  lane(at).attention.fetch_or(abi::kTellFaults, std::memory_order_relaxed);
}

GateReport ClientPage::gate(unsigned at) const {
  const abi::Gate& from = gate_at(at);
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  GateReport out;
  out.state = std::min(get(from.state), abi::kGateRefused);
  out.error = get(from.gate_error);
  out.held_threads = std::min(get(from.held_threads), kMostThreads);
  out.waits = get(from.waits);
  for (unsigned slot = 0; slot < abi::kProgressSlots; ++slot) {
    // `done` first: it only grows, and what is submitted is never below it, so equal ones were
    // equal when `submitted` was read.
    const std::uint32_t done = from.done[slot].load(std::memory_order_acquire);
    out.done = out.done && done == get(from.submitted[slot]);
    out.progress += done;
  }
  out.bursts = bursts(at);
  return out;
}

policy::Bursts ClientPage::bursts(unsigned at) const {
  const abi::Gate& from = gate_at(at);
  const abi::Lane& counters = lane(at);
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  policy::Bursts out;
  // Acquire: what is counted was stored before.
  out.count = from.bursts.load(std::memory_order_acquire);
  out.waited_ns = get(from.waited_ns);
  out.burst_ns = get(from.burst_ns);
  // First of the two: it is never above the launches.
  const std::uint32_t launched = from.launched.load(std::memory_order_acquire);
  out.launched =
      static_cast<std::uint32_t>(get(counters.launches) + get(counters.graph_launches)) - launched;
  out.waiting = get(from.waiting) != 0;
  for (unsigned i = 0; i < abi::kCountedBursts; ++i) {
    out.last[i] = {get(from.counts[i]), get(counters.burst_cpu_us[i]),
                   get(counters.burst_waited_us[i])};
  }
  return out;
}

void ClientPage::write_gate(unsigned at, const GateOrder& order) {
  abi::Gate& to = gate_at(at);
  abi::Word32& attention = lane(at).attention;
  store_if_other(to.spacing_us, order.spacing_us);
  store_if_other(to.pause_until_ns, order.pause_until_ns);
  store_if_other(to.paused, order.paused ? 1u : 0u);
  store_if_other(to.ring_after, (order.ring_after & ~abi::kWaitForeseen) |
                                    (order.wait_foreseen ? abi::kWaitForeseen : 0));
  const std::uint32_t wanted =
      (order.armed || order.closed != 0 ? abi::kGateArmed : 0) |
      (order.watch || order.linger ? abi::kProgress : 0) | (order.linger ? abi::kLinger : 0) |
      (order.time_bursts ? abi::kTimeBursts : 0) | (order.tell_waits ? abi::kTellWaits : 0);
  const std::uint32_t seen = attention.load(std::memory_order_relaxed);
  // The launch path looks at `attention` alone: it must say so before the gate is closed. Or, and
  // and: kWakeMonitor belongs to both sides.
  if ((wanted & ~seen) != 0) attention.fetch_or(wanted, std::memory_order_release);
  if (to.closed.load(std::memory_order_relaxed) != order.closed &&
      to.closed.exchange(order.closed, std::memory_order_acq_rel) != 0 && order.closed == 0) {
    wake_all(to.closed);
  }
  const std::uint32_t off =
      (abi::kGateArmed | abi::kProgress | abi::kLinger | abi::kTimeBursts | abi::kTellWaits) &
      ~wanted;
  if ((seen & off) != 0) attention.fetch_and(~off, std::memory_order_release);
}

ResidencyReport ClientPage::residency(unsigned at) const {
  const abi::Residency& from = residency_at(at);
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  ResidencyReport out;
  // Acquire: what is there was stored before the phase that it belongs to.
  const std::uint32_t phase = from.phase.load(std::memory_order_acquire);
  out.phase = phase <= abi::kDetached ? phase : abi::kResident;
  // Likewise: the error was stored before the order that it answers.
  out.answered = from.answered.load(std::memory_order_acquire);
  const std::uint32_t error = get(from.error);
  out.error = error <= abi::kSwapNoPeerRoom ? error : abi::kSwapFailed;
  out.swap_result = get(from.swap_result);
  out.held_threads = std::min(get(from.held_threads), kMostThreads);
  out.moves = get(from.moves);
  out.limited = std::min(get(from.limited), abi::kContextsToo);
  out.total_bytes = get(from.total_bytes);
  out.resident_bytes = std::min(get(from.resident_bytes), out.total_bytes);
  out.host_bytes = get(from.host_bytes);
  out.moved_bytes = get(from.moved_bytes);
  // Acquire: the lane was stored before the bytes that are on it.
  const std::uint64_t parked = lane(at).parked_bytes.load(std::memory_order_acquire);
  out.parked_bytes = std::min(parked, out.total_bytes);
  out.parked_lane = get(lane(at).parked_lane);
  return out;
}

MemoryReport ClientPage::memory(unsigned at) const {
  const auto& from = element<abi::Memory>(abi::SectionId::kMemories, at);
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  MemoryReport out;
  out.swappable = (get(lane(at).attention) & abi::kSwappable) != 0;
  for (unsigned why = 0; why < kStays; ++why) out.stays[why] = get(from.stays_bytes[why]);
  out.moved_out_bytes = get(from.moved_out_bytes);
  out.moved_in_bytes = get(from.moved_in_bytes);
  out.spared_bytes = get(from.spared_bytes);
  out.times_out = get(from.times_out);
  out.contexts = std::min(get(from.contexts), abi::kContextsNoCalls);
  out.taken_bytes = get(residency_at(at).taken_bytes);
  return out;
}

std::uint64_t ClientPage::used_bytes(unsigned at) const {
  return lane(at).used_bytes.load(std::memory_order_relaxed);
}

PlaceReport ClientPage::place(unsigned at) const {
  const abi::Lane& from = lane(at);
  PlaceReport out;
  // Acquire: the GPU's name was stored before.
  out.movable = from.places.load(std::memory_order_acquire) != 0;
  std::memcpy(out.uuid.data(), from.uuid, out.uuid.size());
  return out;
}

void ClientPage::write_place(unsigned at, const std::vector<std::array<std::uint8_t, 16>>& machine,
                             std::size_t shall_be_on) {
  for (unsigned gpu = 0; gpu < abi::kMaxGpus; ++gpu) {
    std::uint64_t words[2] = {};
    if (gpu < machine.size()) std::memcpy(words, machine[gpu].data(), sizeof(words));
    for (const unsigned i : {0u, 1u}) store_if_other(lane(gpu).machine_uuid[i], words[i]);
  }
  lane(at).shall_be_on.store(static_cast<std::uint32_t>(shall_be_on) + 1,
                             std::memory_order_release);
}

void ClientPage::write_unpin(unsigned at, std::uint32_t number, bool precopy) {
  lane(at).precopy.store(precopy ? 1 : 0, std::memory_order_relaxed);
  lane(at).unpin.store(number, std::memory_order_release);
}

std::uint32_t ClientPage::unpinned(unsigned at) const {
  return lane(at).unpinned.load(std::memory_order_acquire);
}

bool ClientPage::precopies(unsigned at) const {
  return lane(at).precopies.load(std::memory_order_relaxed) == 1;
}

void ClientPage::write_residency(unsigned at, const ResidencyOrder& order) {
  abi::Residency& to = residency_at(at);
  store_if_other(to.host_limit_bytes, order.host_limit_bytes);
  store_if_other(to.soon_bytes, order.soon_bytes);
  store_if_other(to.gives, order.gives);
  store_if_other(to.takes, order.takes);
  store_if_other(to.limit_bytes, order.limit_bytes);
  // Never more on another GPU than was meant for it.
  if (to.park_lane.load(std::memory_order_relaxed) != order.park_lane) {
    to.park_bytes.store(0, std::memory_order_relaxed);
    to.park_lane.store(order.park_lane, std::memory_order_release);
  }
  store_if_other(to.park_bytes, order.park_bytes);
  to.park_only.store(order.park_only ? 1 : 0, std::memory_order_relaxed);
  const std::uint32_t limited = !order.limited   ? abi::kUnlimited
                                : order.contexts ? abi::kContextsToo
                                                 : abi::kLimited;
  if (to.limited.load(std::memory_order_relaxed) != limited) {
    to.limited.store(limited, std::memory_order_release);
  }
  if (to.order.load(std::memory_order_relaxed) != order.number) {
    to.order.store(order.number, std::memory_order_release);
  }
#if defined(SWITCHYARD_SUCCESSOR_MORE)
  if (directory_.reaches(abi::SectionId::kResidencies, sizeof(to) + sizeof(abi::Word32))) {
    reinterpret_cast<abi::Word32*>(&to + 1)->store(order.number, std::memory_order_relaxed);
  }
  element<abi::Word64>(abi::SectionId::kMadeUp, at).store(order.number, std::memory_order_relaxed);
#endif
}

// Acquire: a slot is counted before it is used.
unsigned ClientPage::claimed_communicators() const {
  return std::min(process().communicators_used.load(std::memory_order_acquire),
                  directory_.count(abi::SectionId::kCommunicators));
}

void ClientPage::bound_communicators(std::size_t most) {
  most_communicators_ = static_cast<unsigned>(std::min<std::size_t>(most, abi::kMostCommunicators));
}

std::vector<CommunicatorReport> ClientPage::communicators() const {
  std::vector<CommunicatorReport> out;
  const unsigned slots = std::min(claimed_communicators(), most_communicators_);
  for (unsigned slot = 0; slot < slots; ++slot) {
    const abi::Communicator& from = communicator_at(slot);
    const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
    // Acquire: what it is was stored before the slot was used.
    const std::uint32_t use = from.use.load(std::memory_order_acquire);
    if (use == 0 || use > lane_count_) continue;
    const CommunicatorReport said{slot,
                                  get(from.id),
                                  use - 1,
                                  get(from.rank),
                                  get(from.ranks),
                                  get(from.last_kind),
                                  get(from.launched),
                                  get(from.bytes),
                                  get(from.last_bytes),
                                  get(from.last_ns),
                                  get(from.sent)};
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool known = said.ranks != 0;
    const bool changed = get(from.use) != use || get(from.id) != said.id;
    if (!changed && said.id != 0 && (!known || said.rank < said.ranks)) out.push_back(said);
  }
  return out;
}

std::array<std::uint32_t, abi::kMostCollectives> ClientPage::collectives() const {
  std::array<std::uint32_t, abi::kMostCollectives> out{};
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) {
    out[kind] = process().collectives[kind].load(std::memory_order_relaxed);
  }
  return out;
}

std::array<std::uint64_t, abi::kMostCollectives> ClientPage::collective_bytes() const {
  std::array<std::uint64_t, abi::kMostCollectives> out{};
  for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) {
    out[kind] = process().collective_bytes[kind].load(std::memory_order_relaxed);
  }
  return out;
}

std::uint32_t ClientPage::launching_thread() const {
  return process().launching_thread.load(std::memory_order_relaxed);
}

std::uint32_t ClientPage::unwatched_communicators() const {
  const unsigned claimed = claimed_communicators();
  return std::min(process().unwatched.load(std::memory_order_relaxed), kMostThreads) +
         (claimed - std::min(claimed, most_communicators_));
}

bool ClientPage::launching() const {
  const std::uint64_t left = process().left.load(std::memory_order_seq_cst);
  return process().entered.load(std::memory_order_seq_cst) != left;
}

CutReport ClientPage::cut() const {
  CutReport out;
  // `left` is read first: it is never above `entered`. A thread that entered while the counts were
  // read may have changed them.
  const std::uint64_t left = process().left.load(std::memory_order_seq_cst);
  const std::uint64_t entered = process().entered.load(std::memory_order_seq_cst);
  out.communicators = communicators();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  out.launching = left != entered || process().entered.load(std::memory_order_seq_cst) != entered;
  out.stopped = process().stopped.load(std::memory_order_relaxed) != 0;
  return out;
}

void ClientPage::set_target(const CommunicatorReport& communicator, std::uint64_t launched) {
  abi::Communicator& to = communicator_at(communicator.slot);
  if (to.id.load(std::memory_order_relaxed) != communicator.id) return;
  to.target.store(static_cast<std::uint32_t>(launched), std::memory_order_release);
}

void ClientPage::ask_for_cut(std::uint32_t number) {
  if (process().cut.exchange(number, std::memory_order_seq_cst) != number) wake_all(process().cut);
}

void ClientPage::ask_for(std::uint32_t bit, bool on) {
  for (unsigned at = 0; at < lane_count_; ++at) {
    abi::Word32& attention = lane(at).attention;
    const bool is_on = (attention.load(std::memory_order_relaxed) & bit) != 0;
    if (on && !is_on) attention.fetch_or(bit, std::memory_order_relaxed);
    if (!on && is_on) attention.fetch_and(~bit, std::memory_order_relaxed);
  }
}

std::uint64_t ClientPage::credit(unsigned at, std::uint64_t granted) const {
  return std::min(lane(at).credit_bytes.load(std::memory_order_relaxed), granted);
}

void ClientPage::grant(unsigned at, std::uint64_t bytes) {
  lane(at).credit_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::uint64_t ClientPage::take_back(unsigned at, std::uint64_t bytes, std::uint64_t granted) {
  abi::Word64& word = lane(at).credit_bytes;
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  for (int attempt = 0; attempt < 64; ++attempt) {
    const std::uint64_t take = std::min({bytes, seen, granted});
    if (take == 0) return 0;
    if (word.compare_exchange_weak(seen, seen - take, std::memory_order_relaxed)) return take;
  }
  return 0;
}

}  // namespace switchyard::monitor
