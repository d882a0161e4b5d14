#include "monitor/policy/host_pool.h"

#include <algorithm>
#include <numeric>

namespace switchyard::monitor::policy {
namespace {

// All that is counted here: slabs.
using Slabs = std::vector<std::uint64_t>;

// 4 PiB: no product of two overflows, whatever clients say.
constexpr std::uint64_t kMostSlabs = 1ull << 24;
// Chunks of 26 MiB, the worst size, leave a twelfth of a slab.
constexpr std::uint64_t kWasted = 8;
// For the last slab that is only begun, and for what is more scattered than that.
constexpr std::uint64_t kSpareSlabs = 4;

std::uint64_t slabs_of(std::uint64_t bytes) {
  return std::min(bytes / kHostSlab + (bytes % kHostSlab != 0 ? 1 : 0), kMostSlabs);
}

std::uint64_t usable_slabs(std::uint64_t total_bytes) {
  if (total_bytes == 0) return 0;
  const std::uint64_t slabs = slabs_of(total_bytes);
  return std::min(slabs + (slabs + kWasted - 1) / kWasted + kSpareSlabs, kMostSlabs);
}

std::uint64_t sum(const Slabs& slabs) {
  return std::accumulate(slabs.begin(), slabs.end(), std::uint64_t{0});
}

// What of `a` is beyond `b`.
Slabs beyond(const Slabs& a, const Slabs& b) {
  Slabs out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - std::min(a[i], b[i]);
  return out;
}

// `amount` in proportion to what is wanted, and not more of it. All of it is given if it is wanted:
// who comes later gets what the rounding has left.
Slabs portions(std::uint64_t amount, const Slabs& wanted) {
  const std::uint64_t all = sum(wanted);
  amount = std::min(amount, all);
  Slabs out(wanted.size());
  std::uint64_t wanted_so_far = 0;
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted_so_far += wanted[i];
    out[i] = all == 0 ? 0 : amount * wanted_so_far / all - given;
    given += out[i];
  }
  return out;
}

}  // namespace

std::uint64_t usable_host_bytes(std::uint64_t total_bytes) {
  return usable_slabs(total_bytes) * kHostSlab;
}

std::vector<std::uint64_t> divide_host_pool(std::span<const HostUser> users, std::uint64_t budget) {
  const std::uint64_t all = std::min(budget / kHostSlab, kMostSlabs);
  Slabs usable;
  Slabs pinned;
  for (const HostUser& user : users) {
    usable.push_back(usable_slabs(user.total_bytes));
    pinned.push_back(std::min(slabs_of(user.pinned_bytes), all));
  }
  Slabs shares = portions(all, usable);
  const Slabs kept = portions(all - sum(shares), beyond(pinned, shares));
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] += kept[i];
  const Slabs more = portions(all - std::min(all, sum(pinned)), beyond(shares, pinned));
  std::vector<std::uint64_t> limits;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    limits.push_back((std::min(shares[i], pinned[i]) + more[i]) * kHostSlab);
  }
  return limits;
}

}  // namespace switchyard::monitor::policy
