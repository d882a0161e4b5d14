#include "shim/memory/ledger.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/client/process.h"
#include "shim/lock.h"
#include "shim/memory/account.h"
#include "shim/memory/stays.h"
#include "shim/reset.h"

namespace switchyard::shim::ledger {
namespace {

struct Note {
  std::uint64_t key;
  Charge charge;
  NoteKind kind;
};

constexpr std::uint64_t kFirstPlaces = 1024;

struct State {
  // Open addressing with linear probing, at most half full. A removal closes its gap, so there are
  // no tombstones, and a table that emptied is as fast as a new one.
  Note* places = nullptr;
  std::uint64_t capacity = 0;  // a power of two, or zero
  std::uint64_t count = 0;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

std::uint64_t home(NoteKind kind, std::uint64_t key, std::uint64_t capacity) {
  // Addresses are multiples of large powers of two: only the product's high bits differ.
  const std::uint64_t mixed = (key ^ static_cast<std::uint64_t>(kind) << 58) * 0x9E3779B97F4A7C15u;
  return (mixed ^ mixed >> 32) & (capacity - 1);
}

// The place of a note, or the empty place where it would stand. pre: the table has an empty place.
std::uint64_t find(const Note* places, std::uint64_t capacity, NoteKind kind, std::uint64_t key) {
  std::uint64_t at = home(kind, key, capacity);
  while (places[at].kind != NoteKind::kNone && (places[at].kind != kind || places[at].key != key)) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

bool grow() {
  const std::uint64_t capacity = g_state.capacity == 0 ? kFirstPlaces : g_state.capacity * 2;
  auto* places = static_cast<Note*>(::calloc(capacity, sizeof(Note)));
  if (places == nullptr) return false;
  for (std::uint64_t i = 0; i < g_state.capacity; ++i) {
    if (g_state.places[i].kind == NoteKind::kNone) continue;
    places[find(places, capacity, g_state.places[i].kind, g_state.places[i].key)] =
        g_state.places[i];
  }
  ::free(g_state.places);
  g_state.places = places;
  g_state.capacity = capacity;
  return true;
}

Note* existing(NoteKind kind, std::uint64_t key) {
  if (g_state.capacity == 0) return nullptr;
  Note& note = g_state.places[find(g_state.places, g_state.capacity, kind, key)];
  return note.kind == NoteKind::kNone ? nullptr : &note;
}

void count(const Charge& charge, int sign) {
  memory::stays(charge.lane, charge.why, sign * static_cast<std::int64_t>(charge.bytes));
}

bool hangs_on_context(NoteKind kind) {
  return kind == NoteKind::kPointer || kind == NoteKind::kArray || kind == NoteKind::kMipmap;
}

// pre: the place is empty, or has a note of the same key. Answers what that one was charged.
Charge put(Note& place, const Note& note) {
  Charge ended;
  if (place.kind == NoteKind::kNone) {
    ++g_state.count;
  } else {
    count(place.charge, -1);
    if (hangs_on_context(place.kind)) ended = place.charge;
  }
  place = note;
  count(place.charge, 1);
  return ended;
}

void remove(Note* note) {
  count(note->charge, -1);
  auto gap = static_cast<std::uint64_t>(note - g_state.places);
  g_state.places[gap].kind = NoteKind::kNone;
  --g_state.count;
  const std::uint64_t mask = g_state.capacity - 1;
  for (std::uint64_t at = (gap + 1) & mask; g_state.places[at].kind != NoteKind::kNone;
       at = (at + 1) & mask) {
    // A note may move back into the gap unless its home lies behind the gap.
    const std::uint64_t from =
        home(g_state.places[at].kind, g_state.places[at].key, g_state.capacity);
    if (((at - from) & mask) < ((at - gap) & mask)) continue;
    g_state.places[gap] = g_state.places[at];
    g_state.places[at].kind = NoteKind::kNone;
    gap = at;
  }
}

}  // namespace

namespace {

// pre: the lock is held. Null: there is no memory.
Note* place_of(NoteKind kind, std::uint64_t key) {
  if ((g_state.count + 1) * 2 > g_state.capacity && !grow()) return nullptr;
  return &g_state.places[find(g_state.places, g_state.capacity, kind, key)];
}

}  // namespace

bool refer(NoteKind kind, std::uint64_t key, Charge first) {
  const Locked locked(g_state.lock);
  Note* place = place_of(kind, key);
  if (place == nullptr) return false;
  if (place->kind != NoteKind::kNone) {
    ++place->charge.handles;
    return true;
  }
  first.handles = 1;
  put(*place, {key, first, kind});
  return true;
}

bool note(NoteKind kind, std::uint64_t key, const Charge& charge) {
  Charge ended;
  {
    const Locked locked(g_state.lock);
    Note* place = place_of(kind, key);
    if (place == nullptr) return false;
    ended = put(*place, {key, charge, kind});
  }
  account::release(lane_of_device(ended.lane), ended.bytes);
  return true;
}

bool take(NoteKind kind, std::uint64_t key, Charge& charge) {
  const Locked locked(g_state.lock);
  Note* found = existing(kind, key);
  if (found == nullptr) return false;
  charge = found->charge;
  remove(found);
  return true;
}

bool look(NoteKind kind, std::uint64_t key, Charge& charge) {
  const Locked locked(g_state.lock);
  const Note* found = existing(kind, key);
  if (found == nullptr) return false;
  charge = found->charge;
  return true;
}

std::uint64_t next(NoteKind kind, std::uint64_t from, std::uint64_t end) {
  const Locked locked(g_state.lock);
  for (std::uint64_t i = 0; i < g_state.capacity; ++i) {
    const Note& note = g_state.places[i];
    if (note.kind == kind && note.key >= from && note.key < end) end = note.key;
  }
  return end;
}

void stays(NoteKind kind, std::uint64_t key, Stays why) {
  const Locked locked(g_state.lock);
  Note* found = existing(kind, key);
  if (found == nullptr) return;
  count(found->charge, -1);
  found->charge.why = why;
  count(found->charge, 1);
}

bool adjust(NoteKind kind, std::uint64_t key, int handles, int mappings, Charge& charge,
            bool& gone) {
  const Locked locked(g_state.lock);
  Note* found = existing(kind, key);
  if (found == nullptr) return false;
  found->charge.handles += static_cast<std::uint32_t>(handles);
  found->charge.mappings += static_cast<std::uint32_t>(mappings);
  charge = found->charge;
  gone = charge.handles == 0 && charge.mappings == 0;
  if (gone) remove(found);
  return true;
}

std::uint64_t take_owned(int lane, std::uint64_t owner) {
  const Locked locked(g_state.lock);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < g_state.capacity;) {
    Note& note = g_state.places[i];
    const bool ends = hangs_on_context(note.kind) || note.kind == NoteKind::kOpened;
    if (ends && note.charge.lane == lane && note.charge.owner == owner) {
      if (note.kind != NoteKind::kOpened) bytes += note.charge.bytes;
      remove(&note);  // another note may have moved into this place: look at it again
    } else {
      ++i;
    }
  }
  return bytes;
}

void drop(NoteKind kind, std::uint64_t owner) {
  const Locked locked(g_state.lock);
  for (std::uint64_t i = 0; i < g_state.capacity;) {
    Note& note = g_state.places[i];
    if (note.kind == kind && note.charge.owner == owner) {
      remove(&note);  // as above
    } else {
      ++i;
    }
  }
}

std::uint64_t orphan_pooled(std::uint64_t pool, int lane) {
  const Locked locked(g_state.lock);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < g_state.capacity;) {
    if (g_state.places[i].kind != NoteKind::kPooled || g_state.places[i].charge.owner != pool) {
      ++i;
      continue;
    }
    Note moved = g_state.places[i];
    remove(&g_state.places[i]);
    moved.kind = NoteKind::kPointer;
    moved.charge.owner = 0;
    moved.charge.lane = lane;
    moved.charge.why = Stays::kPools;
    bytes += moved.charge.bytes;
    put(g_state.places[find(g_state.places, g_state.capacity, moved.kind, moved.key)], moved);
  }
  return bytes;
}

std::uint64_t size() {
  const Locked locked(g_state.lock);
  return g_state.count;
}

// Another thread of the parent may have held the lock at the fork, with the table half changed. So
// both start anew, and the parent's table is left where it is.
void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::ledger
