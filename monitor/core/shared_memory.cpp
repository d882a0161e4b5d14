#include "monitor/core/shared_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "switchyard/handover.h"

namespace switchyard::monitor {
namespace {

// One client leaves room for others.
constexpr std::size_t kShareOfOne = 2;

std::tuple<uid_t, std::uint64_t, std::uint64_t> key_of(uid_t uid, const wire::Key& key) {
  return {uid, key.words[0], key.words[1]};
}

}  // namespace

// pre: more <= most_
bool SharedMemory::has_room(uid_t account, std::size_t more) const {
  if (promised_ > most_ - more) return false;
  if (account == 0 || account == owner_) return true;
  // Half of it for one user, and a quarter that is left for root.
  std::size_t others = 0;
  std::size_t mine = 0;
  for (const auto& [user, promised] : promised_to_user_) {
    if (user != 0 && user != owner_) others += promised;
    if (user == account) mine = promised;
  }
  return mine + more <= most_ / 2 && others + more <= most_ / 4 * 3;
}

wire::ShareVerdict SharedMemory::begin(ClientId client, const Owner& owner,
                                       const wire::Share& asked) {
  if (asked.total == 0) return wire::kBadShare;
  const uid_t account = account_of(owner);
  const std::size_t has = promised_to_[client];
  const std::size_t most_of_one = most_ / kShareOfOne;
  if (asked.total > most_of_one || has > most_of_one - asked.total ||
      !has_room(account, asked.total)) {
    return wire::kNoRoomToShare;
  }
  promised_to_[client] += asked.total;
  promised_to_user_[account] += asked.total;
  promised_ += asked.total;
  shares_[key_of(owner.uid, asked.key)] = {client, account, asked.total, {}};
  return wire::kTaken;
}

wire::ShareVerdict SharedMemory::share(ClientId client, const Owner& owner,
                                       const wire::Share& asked, std::vector<Fd>& descriptors) {
  const uid_t uid = owner.uid;
  auto found = shares_.find(key_of(uid, asked.key));
  // Another's is none of its business.
  if (found != shares_.end() && found->second.client != client) return wire::kBadShare;
  // From the first on again: the client has begun anew.
  if (found != shares_.end() && asked.first == 0) {
    drop(found);
    found = shares_.end();
  }
  if (found == shares_.end()) {
    if (asked.first != 0) return wire::kBadShare;
    const wire::ShareVerdict refused = begin(client, owner, asked);
    if (refused != wire::kTaken) return refused;
    found = shares_.find(key_of(uid, asked.key));
  }
  Kept& kept = found->second;
  // They were sent, but this process could open no more files.
  if (descriptors.empty()) {
    drop(found);
    return wire::kNoRoomToShare;
  }
  if (asked.total != kept.total || asked.first != kept.descriptors.size() ||
      descriptors.size() > kept.total - kept.descriptors.size() ||
      !std::all_of(descriptors.begin(), descriptors.end(),
                   [](const Fd& each) { return is_memory(each.get()); })) {
    drop(found);
    return wire::kBadShare;
  }
  std::move(descriptors.begin(), descriptors.end(), std::back_inserter(kept.descriptors));
  descriptors.clear();
  return wire::kTaken;
}

wire::Shared SharedMemory::open(uid_t uid, const wire::Share& asked,
                                std::vector<int>& descriptors) const {
  descriptors.clear();
  const auto found = shares_.find(key_of(uid, asked.key));
  const wire::Shared none{wire::kNoSuchShare, 0, 0, 0};
  if (found == shares_.end()) return none;
  const Kept& kept = found->second;
  if (kept.descriptors.size() != kept.total || asked.first >= kept.total) return none;
  const std::size_t count = std::min<std::size_t>(kept.total - asked.first, wire::kMostDescriptors);
  for (std::size_t i = 0; i < count; ++i) {
    descriptors.push_back(kept.descriptors[asked.first + i].get());
  }
  return {wire::kTaken, static_cast<std::uint32_t>(kept.total), static_cast<std::uint32_t>(count),
          0};
}

wire::ShareVerdict SharedMemory::end(ClientId client, uid_t uid, const wire::Key& key) {
  const auto found = shares_.find(key_of(uid, key));
  if (found == shares_.end() || found->second.client != client) return wire::kNoSuchShare;
  drop(found);
  return wire::kTaken;
}

void SharedMemory::sent(uid_t uid, const wire::Share& asked, const wire::Shared& answer) {
  const auto found = shares_.find(key_of(uid, asked.key));
  if (found == shares_.end() || !handover::is_key(asked.key)) return;
  if (asked.first + answer.count != answer.total) return;
  drop(found);
}

void SharedMemory::left(ClientId client) {
  for (auto share = shares_.begin(); share != shares_.end();) {
    share = share->second.client == client ? drop(share) : std::next(share);
  }
  promised_to_.erase(client);
}

SharedMemory::Shares::iterator SharedMemory::drop(Shares::iterator share) {
  promised_ -= share->second.total;
  promised_to_[share->second.client] -= share->second.total;
  const uid_t account = share->second.account;
  const auto user = promised_to_user_.find(account);
  user->second -= share->second.total;
  if (user->second == 0) promised_to_user_.erase(user);
  close_(account, std::move(share->second.descriptors));
  return shares_.erase(share);
}

std::size_t most_shared_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  constexpr rlim_t kEnough = 1 << 20;
  return static_cast<std::size_t>(std::min(limit.rlim_cur, kEnough)) / 2;
}

bool is_memory(int fd) {
  // Only a file in memory has seals. AT_STATX_DONT_SYNC: no file server is asked.
  if (::fcntl(fd, F_GET_SEALS) >= 0) return true;
  struct statx status {};
  return ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 &&
         (status.stx_mask & STATX_TYPE) != 0 && S_ISCHR(status.stx_mode);
}

}  // namespace switchyard::monitor
