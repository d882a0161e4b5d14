#include "shim/memory/stays.h"

#include "shim/client/process.h"

namespace switchyard::shim::memory {
namespace {

// Of two threads at once the slower one may store the older sum: it looks again.
void tell(unsigned lane, unsigned why) {
  const std::atomic<std::uint64_t>& sum = process().stays_bytes[lane][why];
  abi::Word64& word = page().memories[lane].stays_bytes[why];
  std::uint64_t told = 0;
  do {
    told = sum.load();
    word.store(told);
  } while (sum.load() != told);
}

}  // namespace

void stays(int lane, Stays why, std::int64_t bytes) {
  if (why == Stays::kLeaves || bytes == 0) return;
  if (lane < 0 || lane >= static_cast<int>(abi::kMaxGpus)) return;
  const auto at = static_cast<unsigned>(lane);
  const auto reason = static_cast<unsigned>(why);
  process().stays_bytes[at][reason].fetch_add(static_cast<std::uint64_t>(bytes));
  tell(at, reason);
}

void tell_stays() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    for (unsigned why = 0; why < kStays; ++why) tell(lane, why);
  }
}

}  // namespace switchyard::shim::memory
