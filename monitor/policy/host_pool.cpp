#include "monitor/policy/host_pool.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

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

// The part of `a` beyond `b`.
Slabs beyond(const Slabs& a, const Slabs& b) {
  Slabs out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - std::min(a[i], b[i]);
  return out;
}

// `amount` in proportion to what is wanted, and not more of it. All of it is given if it is wanted:
// who comes later gets what the rounding has left.
Slabs portions_of_one(std::uint64_t amount, const Slabs& wanted) {
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

using Owners = std::vector<unsigned>;

// By owner: all that it wants, or as much as each other one that wants more.
std::map<unsigned, std::uint64_t> parts(std::uint64_t amount, const Slabs& wanted,
                                        const Owners& owners) {
  std::map<unsigned, std::uint64_t> wants;
  for (std::size_t i = 0; i < wanted.size(); ++i) wants[owners[i]] += wanted[i];
  std::vector<std::pair<std::uint64_t, unsigned>> by_want;
  for (const auto& [owner, want] : wants) by_want.emplace_back(want, owner);
  std::sort(by_want.begin(), by_want.end());
  std::uint64_t left = by_want.size();
  for (const auto& [want, owner] : by_want) {
    const std::uint64_t part = std::min(want, amount / left--);
    wants[owner] = part;
    amount -= part;
  }
  return wants;
}

// The same among the processes of each owner. So many small ones of one user leave others theirs.
Slabs portions(std::uint64_t amount, const Slabs& wanted, const Owners& owners) {
  Slabs out(wanted.size());
  for (const auto& [owner, part] : parts(amount, wanted, owners)) {
    Slabs its(wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) its[i] = owners[i] == owner ? wanted[i] : 0;
    its = portions_of_one(part, its);
    for (std::size_t i = 0; i < wanted.size(); ++i) out[i] += its[i];
  }
  return out;
}

struct Pool {
  std::uint64_t all = 0;
  Slabs usable = {};
  Slabs pinned = {};
  Slabs away = {};    // of what is away
  Slabs shares = {};  // in proportion to what is usable
  Owners owners = {};
};

// So many slabs that usable_part() of them is at least that.
std::uint64_t slabs_for(std::uint64_t bytes) {
  const std::uint64_t most = kMostSlabs * kHostSlab;
  return slabs_of(std::min(bytes, most) + (std::min(bytes, most) + kWasted - 2) / (kWasted - 1));
}

Pool pool_of(std::span<const HostUser> users, std::uint64_t budget) {
  Pool pool{.all = std::min(budget / kHostSlab, kMostSlabs)};
  for (const HostUser& user : users) {
    const std::uint64_t away = std::min(user.away_bytes, user.total_bytes);
    pool.usable.push_back(usable_slabs(user.total_bytes));
    pool.pinned.push_back(std::min(slabs_of(user.pinned_bytes), pool.all));
    pool.away.push_back(std::min(slabs_for(away), pool.all));
    pool.owners.push_back(user.owner);
  }
  pool.shares = portions(pool.all, pool.usable, pool.owners);
  return pool;
}

// The slabs for those that take no turns.
std::uint64_t without_turns(std::span<const HostUser> users, const Pool& pool) {
  std::uint64_t slabs = 0;
  for (std::size_t i = 0; i < users.size(); ++i) {
    if (!users[i].takes_turns) slabs += std::max(pool.shares[i], pool.away[i]);
  }
  return slabs;
}

// Of too small a pool: what is away is there first, then each that may have to leave gets a slab.
Slabs shares_in_turns(std::span<const HostUser> users, const Pool& pool) {
  Slabs kept;
  Slabs first;
  Slabs more;
  for (std::size_t i = 0; i < users.size(); ++i) {
    const HostUser& user = users[i];
    const std::uint64_t away = std::min(user.away_bytes, user.total_bytes);
    const std::uint64_t there = usable_slabs(user.total_bytes - away);
    const std::uint64_t want = user.takes_turns ? std::min(there, pool.usable[i]) : 0;
    kept.push_back(user.takes_turns ? pool.away[i] : std::max(pool.shares[i], pool.away[i]));
    first.push_back(want != 0 && !user.comes ? 1 : 0);
    more.push_back(want - first.back());
  }
  Slabs shares = portions(pool.all, kept, pool.owners);
  first = portions(pool.all - sum(shares), first, pool.owners);
  more = portions(pool.all - sum(shares) - sum(first), more, pool.owners);
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] += first[i] + more[i];
  return shares;
}

}  // namespace

std::uint64_t usable_host_bytes(std::uint64_t total_bytes) {
  return usable_slabs(total_bytes) * kHostSlab;
}

std::uint64_t turns_hold(std::span<const HostUser> users, std::uint64_t budget) {
  const Pool pool = pool_of(users, budget);
  // The last slab of each is only begun.
  std::uint64_t lost = without_turns(users, pool);
  for (const HostUser& user : users) lost += user.takes_turns && user.total_bytes != 0 ? 1 : 0;
  return usable_part((pool.all - std::min(pool.all, lost)) * kHostSlab);
}

std::vector<std::uint64_t> divide_host_pool(std::span<const HostUser> users, std::uint64_t budget) {
  const Pool pool = pool_of(users, budget);
  const std::uint64_t all = pool.all;
  const Slabs& pinned = pool.pinned;
  Slabs shares = sum(pool.usable) <= all ? pool.shares : shares_in_turns(users, pool);
  const Slabs kept = portions(all - sum(shares), beyond(pinned, shares), pool.owners);
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] += kept[i];
  const Slabs more =
      portions(all - std::min(all, sum(pinned)), beyond(shares, pinned), pool.owners);
  std::vector<std::uint64_t> limits;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    limits.push_back((std::min(shares[i], pinned[i]) + more[i]) * kHostSlab);
  }
  return limits;
}

}  // namespace switchyard::monitor::policy
