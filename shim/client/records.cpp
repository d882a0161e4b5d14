#include "shim/client/records.h"

#include <algorithm>

#include "shim/clock.h"

namespace switchyard::shim::records {

void note(std::uint32_t what, std::uint64_t bytes) {
  // Number 0 means that it is being written, so a record that would have it is left out.
  const std::uint32_t number = page().recorded.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number == 0) return;
  abi::Record& record = page().records[(number - 1) % abi::kRecords];
  record.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.time_us.store(static_cast<std::uint32_t>(monotonic_ns() / 1000),
                       std::memory_order_relaxed);
  record.what.store(what, std::memory_order_relaxed);
  record.bytes.store(
      static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, abi::kMostRecordedBytes)),
      std::memory_order_relaxed);
  record.number.store(number, std::memory_order_release);
}

}  // namespace switchyard::shim::records
