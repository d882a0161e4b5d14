#include "shim/memory/ledger.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/lock.h"
#include "shim/memory/stays.h"
#include "shim/reset.h"

namespace switchyard::shim::ledger {
namespace {

struct Note {
  std::uint64_t key;
  Charge charge;
  Kind kind;
};

constexpr std::uint64_t kFirstPlaces = 1024;

// Open addressing with linear probing, at most half full; a removal closes its gap, so there are no
// tombstones and a table that emptied is as fast as a new one.
Note* g_places = nullptr;
std::uint64_t g_capacity = 0;  // a power of two, or zero
std::uint64_t g_count = 0;
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

std::uint64_t home(Kind kind, std::uint64_t key, std::uint64_t capacity) {
  // Addresses are multiples of large powers of two: only the product's high bits differ.
  const std::uint64_t mixed = (key ^ static_cast<std::uint64_t>(kind) << 58) * 0x9E3779B97F4A7C15u;
  return (mixed ^ mixed >> 32) & (capacity - 1);
}

// The place of a note, or the empty place where it would stand. pre: the table has an empty place.
std::uint64_t find(const Note* places, std::uint64_t capacity, Kind kind, std::uint64_t key) {
  std::uint64_t at = home(kind, key, capacity);
  while (places[at].kind != Kind::kNone && (places[at].kind != kind || places[at].key != key)) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

bool grow() {
  const std::uint64_t capacity = g_capacity == 0 ? kFirstPlaces : g_capacity * 2;
  auto* places = static_cast<Note*>(::calloc(capacity, sizeof(Note)));
  if (places == nullptr) return false;
  for (std::uint64_t i = 0; i < g_capacity; ++i) {
    if (g_places[i].kind == Kind::kNone) continue;
    places[find(places, capacity, g_places[i].kind, g_places[i].key)] = g_places[i];
  }
  ::free(g_places);
  g_places = places;
  g_capacity = capacity;
  return true;
}

Note* existing(Kind kind, std::uint64_t key) {
  if (g_capacity == 0) return nullptr;
  Note& note = g_places[find(g_places, g_capacity, kind, key)];
  return note.kind == Kind::kNone ? nullptr : &note;
}

void count(const Charge& charge, int sign) {
  memory::stays(charge.lane, charge.why, sign * static_cast<std::int64_t>(charge.bytes));
}

// pre: the place is empty, or has a note of the same key.
void put(Note& place, const Note& note) {
  if (place.kind == Kind::kNone) {
    ++g_count;
  } else {
    count(place.charge, -1);
  }
  place = note;
  count(place.charge, 1);
}

void remove(Note* note) {
  count(note->charge, -1);
  auto gap = static_cast<std::uint64_t>(note - g_places);
  g_places[gap].kind = Kind::kNone;
  --g_count;
  const std::uint64_t mask = g_capacity - 1;
  for (std::uint64_t at = (gap + 1) & mask; g_places[at].kind != Kind::kNone;
       at = (at + 1) & mask) {
    // A note may move back into the gap unless its home lies behind the gap.
    const std::uint64_t from = home(g_places[at].kind, g_places[at].key, g_capacity);
    if (((at - from) & mask) < ((at - gap) & mask)) continue;
    g_places[gap] = g_places[at];
    g_places[at].kind = Kind::kNone;
    gap = at;
  }
}

bool hangs_on_context(Kind kind) {
  return kind == Kind::kPointer || kind == Kind::kArray || kind == Kind::kMipmap;
}

}  // namespace

bool note(Kind kind, std::uint64_t key, const Charge& charge) {
  const Locked locked(g_lock);
  if ((g_count + 1) * 2 > g_capacity && !grow()) return false;
  Note& place = g_places[find(g_places, g_capacity, kind, key)];
  put(place, {key, charge, kind});
  return true;
}

bool take(Kind kind, std::uint64_t key, Charge& charge) {
  const Locked locked(g_lock);
  Note* found = existing(kind, key);
  if (found == nullptr) return false;
  charge = found->charge;
  remove(found);
  return true;
}

bool look(Kind kind, std::uint64_t key, Charge& charge) {
  const Locked locked(g_lock);
  const Note* found = existing(kind, key);
  if (found == nullptr) return false;
  charge = found->charge;
  return true;
}

bool adjust(std::uint64_t handle, int handles, int mappings, Charge& charge, bool& gone) {
  const Locked locked(g_lock);
  Note* found = existing(Kind::kHandle, handle);
  if (found == nullptr) return false;
  found->charge.handles += static_cast<std::uint32_t>(handles);
  found->charge.mappings += static_cast<std::uint32_t>(mappings);
  charge = found->charge;
  gone = charge.handles == 0 && charge.mappings == 0;
  if (gone) remove(found);
  return true;
}

std::uint64_t take_owned(int lane, std::uint64_t owner) {
  const Locked locked(g_lock);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < g_capacity;) {
    Note& note = g_places[i];
    if (hangs_on_context(note.kind) && note.charge.lane == lane && note.charge.owner == owner) {
      bytes += note.charge.bytes;
      remove(&note);  // another note may have moved into this place: look at it again
    } else {
      ++i;
    }
  }
  return bytes;
}

std::uint64_t orphan_pooled(std::uint64_t pool, int lane) {
  const Locked locked(g_lock);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < g_capacity;) {
    if (g_places[i].kind != Kind::kPooled || g_places[i].charge.owner != pool) {
      ++i;
      continue;
    }
    Note moved = g_places[i];
    remove(&g_places[i]);
    moved.kind = Kind::kPointer;
    moved.charge.owner = 0;
    moved.charge.lane = lane;
    moved.charge.why = Stays::kPools;
    bytes += moved.charge.bytes;
    put(g_places[find(g_places, g_capacity, moved.kind, moved.key)], moved);
  }
  return bytes;
}

std::size_t keys(Kind kind, int lane, std::uint64_t* out, std::size_t most) {
  const Locked locked(g_lock);
  std::size_t found = 0;
  for (std::uint64_t i = 0; i < g_capacity; ++i) {
    if (g_places[i].kind != kind || g_places[i].charge.lane != lane) continue;
    if (found < most) out[found] = g_places[i].key;
    ++found;
  }
  return found;
}

std::uint64_t size() {
  const Locked locked(g_lock);
  return g_count;
}

void clear() {
  // Another thread of the parent may have held the lock at the fork, with the table half changed:
  // both start anew, and the parent's table is left where it is.
  g_lock = PTHREAD_MUTEX_INITIALIZER;
  g_places = nullptr;
  g_capacity = 0;
  g_count = 0;
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::ledger
