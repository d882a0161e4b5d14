#include "shim/memory/info.h"

#include <algorithm>

#include "shim/client/client.h"
#include "shim/memory/account.h"
#include "shim/memory/pools.h"

namespace switchyard::shim::memory {

Shown shown(const abi::Lane& lane, Shown real) {
  const std::uint64_t quota = lane.quota_bytes.load(std::memory_order_relaxed);
  const std::uint64_t total = quota != 0 ? std::min(quota, real.total) : real.total;
  return {std::min({real.free, account::available_bytes(lane), total}), total};
}

bool refresh(abi::Lane& lane) {
  pools::settle_all();
  wire::Charged answer{};
  return process().joined.load(std::memory_order_acquire) == 0 ||
         request(wire::kRefresh, lane_index(&lane), 0, answer);
}

}  // namespace switchyard::shim::memory
