#include "monitor/scheduling/slice_applier.h"

#include <algorithm>

#include "monitor/policy/policy.h"

namespace switchyard::monitor {
namespace {

constexpr unsigned kManyRefusals = 3;

}  // namespace

void SliceApplier::join(ClientId client, bool maybe_short) {
  Entry& entry = entries_[client] = Entry{};
  entry.ever_short = maybe_short;
  entry.must_write = maybe_short;
}

void SliceApplier::left(ClientId client) {
  const auto found = entries_.find(client);
  if (found == entries_.end()) return;
  // One that can't have a short slice any more is of no interest.
  if (!found->second.possibly_short()) {
    entries_.erase(found);
  } else {
    found->second.reachable = false;
  }
}

void SliceApplier::heard(ClientId client, std::uint32_t applied_seq, bool refused) {
  const auto found = entries_.find(client);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (applied_seq <= entry.confirmed || applied_seq > entry.seq) return;
  if (!refused) {
    entry.confirmed = applied_seq;
    // It stays one that refuses: taking the default back proves nothing.
    if (entry.refusals < kManyRefusals) entry.refusals = 0;
    return;
  }
  // The version before may still be in force. An answer to an older version is not one to the last.
  if (applied_seq != entry.seq || entry.must_write || entry.refusals >= kManyRefusals) return;
  ++entry.refusals;
  entry.must_write = entry.refusals < kManyRefusals;
}

void SliceApplier::groups_changed(ClientId client) {
  const auto found = entries_.find(client);
  if (found == entries_.end()) return;
  found->second.must_write = found->second.must_write || found->second.refusals > 0;
  found->second.refusals = 0;
}

void SliceApplier::want(ClientId client, Slices slices) {
  const auto found = entries_.find(client);
  if (found != entries_.end()) found->second.wanted = slices;
}

bool SliceApplier::another_possibly_short(ClientId client) const {
  return std::any_of(entries_.begin(), entries_.end(), [client](const auto& other) {
    return other.first != client && other.second.possibly_short();
  });
}

std::vector<SliceWrite> SliceApplier::step() {
  std::vector<SliceWrite> out;
  const auto write = [&out](ClientId client, Entry& entry, Slices slices) {
    if (slices == entry.written && !entry.must_write) return;
    entry.must_write = false;
    entry.written = slices;
    ++entry.seq;
    if (is_short(slices)) {
      entry.ever_short = true;
      entry.last_short = entry.seq;
    }
    out.push_back({client, entry.seq, slices});
  };
  // Raise first: what it frees may already be confirmed when the next step lowers.
  for (auto& [client, entry] : entries_) {
    if (!entry.reachable) continue;
    if (!is_short(entry.wanted)) {
      write(client, entry, entry.wanted);
    } else if (another_possibly_short(client) && (entry.must_write || !is_short(entry.written))) {
      write(client, entry, policy::kYieldShared);
    }
  }
  for (auto& [client, entry] : entries_) {
    if (!entry.reachable || !is_short(entry.wanted) || another_possibly_short(client)) continue;
    write(client, entry, entry.wanted);
  }
  return out;
}

bool SliceApplier::possibly_short(ClientId client) const {
  const auto found = entries_.find(client);
  return found != entries_.end() && found->second.possibly_short();
}

bool SliceApplier::refuses(ClientId client) const {
  const auto found = entries_.find(client);
  return found != entries_.end() && found->second.refusals >= kManyRefusals;
}

Slices SliceApplier::written(ClientId client) const {
  const auto found = entries_.find(client);
  return found == entries_.end() ? Slices{} : found->second.written;
}

bool SliceApplier::in_force(ClientId client) const {
  const auto found = entries_.find(client);
  if (found == entries_.end()) return false;
  const Entry& entry = found->second;
  return entry.written == entry.wanted && entry.seq == entry.confirmed && !entry.must_write;
}

bool SliceApplier::waiting() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& each) {
    return each.second.reachable && each.second.seq != each.second.confirmed &&
           each.second.refusals < kManyRefusals;
  });
}

}  // namespace switchyard::monitor
