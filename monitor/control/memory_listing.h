// The memory of a job on one GPU, as `ps` tells it. It says how much can leave, how much stays and
// why, and how much has been moved.
//
// Concept. A client says what it likes; the account says how much it uses. So what it says is taken
// only as far as that goes, and what it leaves unexplained is listed as such:
//
//     used by the client = swappable + stays, by reason + "other" (or "not_swappable")
//
// Imported memory is charged to another: it is bounded by the GPU, and listed beside.
//
// Threading: a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "monitor/core/client_page.h"

namespace switchyard::monitor {

class MemoryListing {
 public:
  // One client: `used_bytes` it uses of a GPU of `gpu_bytes`, `swappable_bytes` it says can leave.
  void add(const MemoryReport& said, std::uint64_t used_bytes, std::uint64_t swappable_bytes,
           std::uint64_t gpu_bytes);
  // Puts its keys into the job's listing on that GPU.
  void list(nlohmann::json& gpu) const;
  std::uint64_t swappable_bytes() const { return swappable_; }

 private:
  std::array<std::uint64_t, kStays> stays_{};
  std::uint64_t swappable_ = 0, not_swappable_ = 0, other_ = 0;
  std::uint64_t moved_out_ = 0, moved_in_ = 0, spared_ = 0, taken_ = 0, times_out_ = 0;
};

}  // namespace switchyard::monitor
