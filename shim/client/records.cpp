#include "shim/client/records.h"

#include <algorithm>

#include "shim/clock.h"

namespace switchyard::shim::records {
namespace {

// Number 0 means that it is being written, so a record that would have it is left out.
void put(abi::Word32& count, abi::Record* ring, std::uint32_t size, std::uint32_t time_us,
         std::uint32_t what, std::uint64_t bytes) {
  const std::uint32_t number = count.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number == 0) return;
  abi::Record& record = ring[(number - 1) % size];
  record.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.time_us.store(time_us, std::memory_order_relaxed);
  record.what.store(what, std::memory_order_relaxed);
  record.bytes.store(
      static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, abi::kMostRecordedBytes)),
      std::memory_order_relaxed);
  record.number.store(number, std::memory_order_release);
}

}  // namespace

void note(std::uint32_t what, std::uint64_t bytes) {
  put(page().process.recorded, page().records, abi::kRecords,
      static_cast<std::uint32_t>(monotonic_ns() / 1000), what, bytes);
}

void timing(std::uint32_t what, std::uint64_t began_us, std::uint64_t took_ns) {
  put(page().process.timed, page().timings, abi::kTimings, static_cast<std::uint32_t>(began_us),
      what, took_ns);
}

}  // namespace switchyard::shim::records
