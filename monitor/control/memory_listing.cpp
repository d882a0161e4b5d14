#include "monitor/control/memory_listing.h"

#include <algorithm>

namespace switchyard::monitor {
namespace {

// Takes up to `wanted` of what is left.
std::uint64_t take(std::uint64_t& left, std::uint64_t wanted) {
  const std::uint64_t taken = std::min(left, wanted);
  left -= taken;
  return taken;
}

constexpr auto kImported = static_cast<unsigned>(Stays::kIpcImported);

}  // namespace

void MemoryListing::add(const MemoryReport& said, std::uint64_t used_bytes,
                        std::uint64_t swappable_bytes, std::uint64_t gpu_bytes) {
  std::uint64_t left = used_bytes;
  stays_[kImported] += std::min(said.stays[kImported], gpu_bytes);
  if (said.swappable) {
    swappable_ += take(left, swappable_bytes);
    for (unsigned why = 0; why < kStays; ++why) {
      if (why != kImported) stays_[why] += take(left, said.stays[why]);
    }
  }
  (said.swappable ? other_ : not_swappable_) += left;
  moved_out_ += said.moved_out_bytes;
  moved_in_ += said.moved_in_bytes;
  spared_ += said.spared_bytes;
  taken_ += said.taken_bytes;
  times_out_ += said.times_out;
}

void MemoryListing::list(nlohmann::json& gpu) const {
  nlohmann::json stays = nlohmann::json::object();
  const auto tell = [&](const StaysText& why, std::uint64_t bytes) {
    if (bytes != 0) stays[why.key] = bytes;
  };
  for (unsigned why = 0; why < kStays; ++why) tell(kStaysTexts[why], stays_[why]);
  tell(kStaysNotSwappable, not_swappable_);
  tell(kStaysOther, other_);
  gpu["memory_swappable_bytes"] = swappable_;
  gpu["memory_stays_bytes"] = std::move(stays);
  gpu["swap_moved_out_bytes"] = moved_out_;
  gpu["swap_moved_in_bytes"] = moved_in_;
  gpu["swap_spared_bytes"] = spared_;
  gpu["swap_taken_over_bytes"] = taken_;
  gpu["swap_times_out"] = times_out_;
}

}  // namespace switchyard::monitor
