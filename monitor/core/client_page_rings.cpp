// The rings of a page, and what is asked for there: records, timings and norms.
#include <bit>
#include <utility>

#include "monitor/core/client_page.h"
#include "monitor/core/store_if_other.h"

namespace switchyard::monitor {
namespace {

// What a ring of `size` got since the last call; there were `recorded`. `read`: one of it, by its
// number.
template <typename Report, typename Read>
std::uint32_t read_ring(std::uint32_t recorded, std::uint32_t size, RecordCursor& cursor,
                        std::vector<Report>& out, Read read) {
  if (size == 0) return 0;
  const std::uint32_t came = recorded - cursor.read;
  const std::uint32_t first = came > size ? recorded - size : cursor.read;
  const std::uint32_t unfinished = std::exchange(cursor.unfinished, 0);
  for (std::uint32_t number = first + 1; number != recorded + 1; ++number) {
    const auto record = read(number);
    if (record) {
      out.push_back(*record);
    } else if (number != unfinished && number != 0 && recorded - number < size / 2) {
      // Its writer gets time until the next call.
      cursor.unfinished = number;
      const std::uint32_t before = std::exchange(cursor.read, number - 1);
      return number - 1 - before;
    }
  }
  cursor.read = recorded;
  return came;
}

}  // namespace

// Nothing while it is written, or where another stands in its place by now. No record has number 0.
std::optional<RecordReport> ClientPage::record(abi::SectionId ring, std::uint32_t number) const {
  const std::uint32_t size = directory_.count(ring);
  if (number == 0 || size == 0) return std::nullopt;
  const auto& from = element<abi::Record>(ring, (number - 1) % size);
  if (from.number.load(std::memory_order_acquire) != number) return std::nullopt;
  const RecordReport out{from.time_us.load(std::memory_order_relaxed),
                         from.what.load(std::memory_order_relaxed),
                         from.bytes.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  return out;
}

std::optional<NormReport> ClientPage::norm(std::uint32_t number) const {
  const std::uint32_t size = directory_.count(abi::SectionId::kNorms);
  if (number == 0 || size == 0) return std::nullopt;
  const auto& from = element<abi::Norm>(abi::SectionId::kNorms, (number - 1) % size);
  if (from.number.load(std::memory_order_acquire) != number) return std::nullopt;
  const NormReport out{from.what.load(std::memory_order_relaxed),
                       from.launched.load(std::memory_order_relaxed),
                       from.elements.load(std::memory_order_relaxed),
                       std::bit_cast<double>(from.before.load(std::memory_order_relaxed)),
                       std::bit_cast<double>(from.after.load(std::memory_order_relaxed))};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  return out;
}

std::uint32_t ClientPage::read_records(RecordCursor& cursor, std::vector<RecordReport>& out) const {
  constexpr auto kRing = abi::SectionId::kRecords;
  return read_ring(process().recorded.load(std::memory_order_acquire), directory_.count(kRing),
                   cursor, out, [&](std::uint32_t number) { return record(kRing, number); });
}

std::uint32_t ClientPage::timed() const { return process().timed.load(std::memory_order_acquire); }

std::uint32_t ClientPage::read_timings(RecordCursor& cursor, std::vector<RecordReport>& out) const {
  constexpr auto kRing = abi::SectionId::kTimings;
  return read_ring(timed(), directory_.count(kRing), cursor, out,
                   [&](std::uint32_t number) { return record(kRing, number); });
}

void ClientPage::time_collectives(bool on, std::uint32_t until) {
  process().timing_until.store(until, std::memory_order_relaxed);
  ask_for(abi::kTimeCollectives, on);
}

std::uint32_t ClientPage::read_norms(RecordCursor& cursor, std::vector<NormReport>& out) const {
  return read_ring(process().normed.load(std::memory_order_acquire),
                   directory_.count(abi::SectionId::kNorms), cursor, out,
                   [&](std::uint32_t number) { return norm(number); });
}

void ClientPage::write_norm_order(const CommunicatorReport& communicator,
                                  const noise::Cadence& cadence) {
  if (communicator_at(communicator.slot).id.load(std::memory_order_relaxed) != communicator.id) {
    return;
  }
  auto& to = element<abi::NormOrder>(abi::SectionId::kNormOrders, communicator.slot);
  store_if_other(to.elements, cadence.elements);
  if (to.stride.load(std::memory_order_relaxed) != cadence.stride) {
    to.stride.store(cadence.stride, std::memory_order_release);
  }
}

std::uint32_t ClientPage::unmeasured() const {
  constexpr std::uint32_t kKnown = bit_of(Unmeasured::kEnd) - 1;
  return process().unmeasured.load(std::memory_order_relaxed) & kKnown;
}

std::optional<OperationReport> ClientPage::operation(const CommunicatorReport& communicator,
                                                     std::uint64_t launched) const {
  const std::uint32_t recorded = process().recorded.load(std::memory_order_acquire);
  std::optional<OperationReport> out;
  std::uint32_t least = abi::kRecordedCounts;
  for (std::uint32_t back = directory_.count(abi::SectionId::kRecords); back-- != 0;) {
    const auto said = record(abi::SectionId::kRecords, recorded - back);
    if (!said || (said->what & abi::kLaunchRecord) != 0) continue;
    const std::uint32_t slot_and_kind = said->what / abi::kRecordedCounts;
    if (slot_and_kind / abi::kRecordedKinds != communicator.slot) continue;
    // A group has one record for all of its operations: the first record that counts it.
    const auto beyond = static_cast<std::uint32_t>((said->what - launched) % abi::kRecordedCounts);
    if (beyond >= abi::kRecordedCounts / 2 || beyond >= least) continue;
    least = beyond;
    out = OperationReport{slot_and_kind % abi::kRecordedKinds, said->bytes};
  }
  return out;
}

void ClientPage::record_launches(bool on, const LaunchClasses::Set& classes) {
  for (unsigned word = 0; word < abi::kLaunchClasses / 64; ++word) {
    const auto part = (classes >> (64 * word)) & LaunchClasses::Set(~std::uint64_t{0});
    store_if_other(process().recorded_classes[word], on ? part.to_ullong() : 0);
  }
  ask_for(abi::kRecordLaunches, on);
}

}  // namespace switchyard::monitor
