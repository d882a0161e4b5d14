// Memory that clients share: descriptors of device memory, kept for others of the same user.
//
// Concept. A client that exports memory hands over a descriptor for each piece of it, under a key.
// Only those that it tells know the key, and a client that brings it gets copies (wire.h: kShare).
// It is all or nothing: a share can be opened once all of its descriptors have come. A descriptor
// keeps the memory alive, so none outlives its client's connection.
//
// Keys are per user, in containers too. Some can be guessed (agreement.h), and no user may take
// another's.
//
// The peer is hostile. A descriptor unlike those of drivers is refused, and none is closed here:
// that may take for ever (closer.h). What one client, one user and all together may keep is
// bounded, so that connections find descriptors, and every user room. Room that was promised for
// descriptors to come counts.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "monitor/core/account.h"
#include "monitor/platform/owner.h"
#include "switchyard/fd.h"
#include "switchyard/wire.h"

namespace switchyard::monitor {

class SharedMemory {
 public:
  using Close = std::function<void(uid_t, std::vector<Fd>)>;
  // `most`: descriptors for all clients together; `owner` and root alone may have all of them.
  // `close` gets those that are kept no longer.
  explicit SharedMemory(
      std::size_t most, uid_t owner = 0, Close close = [](uid_t, std::vector<Fd>) {})
      : most_(most), owner_(owner), close_(std::move(close)) {}

  // Takes the next descriptors of a share of `client`, a process of `owner`. Whatever it refuses ends
  // the share, and the descriptors are the caller's still.
  wire::ShareVerdict share(ClientId client, const Owner& owner, const wire::Share& asked,
                           std::vector<Fd>& descriptors);
  // What a process of `uid` gets of a share from asked.first on. `descriptors` are the room's:
  // valid until the next call.
  wire::Shared open(uid_t uid, const wire::Share& asked, std::vector<int>& descriptors) const;
  wire::ShareVerdict end(ClientId client, uid_t uid, const wire::Key& key);
  // What open() answered has been sent. Memory that is handed over (switchyard/handover.h) has one
  // taker. Once that has all of it nothing is kept, because a descriptor keeps the memory from
  // being free.
  void sent(uid_t uid, const wire::Share& asked, const wire::Shared& answer);
  // The client has gone.
  void left(ClientId client);

  // The descriptors that are kept, or were promised room.
  std::size_t descriptors() const { return promised_; }

 private:
  struct Kept {
    ClientId client = 0;
    uid_t account = 0;  // that has the room (owner.h)
    std::size_t total = 0;
    std::vector<Fd> descriptors;
  };
  using Key = std::tuple<uid_t, std::uint64_t, std::uint64_t>;
  using Shares = std::map<Key, Kept>;

  bool has_room(uid_t account, std::size_t more) const;
  wire::ShareVerdict begin(ClientId client, const Owner& owner, const wire::Share& asked);
  Shares::iterator drop(Shares::iterator share);

  Shares shares_;
  std::map<ClientId, std::size_t> promised_to_;
  std::map<uid_t, std::size_t> promised_to_user_;
  std::size_t promised_ = 0;
  std::size_t most_;
  uid_t owner_;
  Close close_;
};

// For SharedMemory: what leaves descriptors enough for everything else that this process does.
std::size_t most_shared_descriptors();

// Whether it is what a driver exports: a device, or, simulated, a file in memory. Asks no other
// file system.
bool is_memory(int fd);

}  // namespace switchyard::monitor
