// Brings the slices of one GPU's clients from their present values to the wanted ones. At no
// instant may two clients have a short one in force. Pure: it says what to write, client_page.h
// writes.
//
// Concept. The monitor writes slices into a page and hears later, or never, that they are in force.
// A client's groups now have one of the versions from the last that it confirmed to the last that
// was written. A client that stopped, or that left its socket without dying, may have any of them
// for as long as it lives. So a client is *possibly short* while one of these versions is short. A
// short slice is written only while no other client is possibly short.
//
//     want(short) ──► blocked: gets the default's length meanwhile ──► others confirmed or died
//                └──► written, possibly short ──► confirmed
//
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "monitor/core/account.h"
#include "monitor/policy/slices.h"

namespace switchyard::monitor {

struct SliceWrite {
  ClientId client = 0;
  std::uint32_t seq = 0;
  Slices slices;
};

class SliceApplier {
 public:
  // `maybe_short`: it was a client of another monitor, so anything may be in force. It is asked for
  // the default first, whose confirmation clears it.
  void join(ClientId client, bool maybe_short);
  // It is dead: what it had in force is gone.
  void died(ClientId client) { entries_.erase(client); }
  // It left, but lives: nothing more can be written, and what it has stays in force.
  void left(ClientId client);

  // The client says which version is in force. Ignores what it can't have seen.
  void heard(ClientId client, std::uint32_t applied_seq, bool refused);
  void want(ClientId client, Slices slices);

  // What to write now, in this order. Ask again after anything changed.
  std::vector<SliceWrite> step();

  bool possibly_short(ClientId client) const;
  // The driver refused this client's slices again and again. A single refusal is asked anew: a
  // group that is just being freed refuses too.
  bool refuses(ClientId client) const;
  // Its groups changed, so what was refused may be accepted now.
  void groups_changed(ClientId client);
  Slices written(ClientId client) const;
  // Whether the wanted slices are those that were written last, and confirmed.
  bool in_force(ClientId client) const;
  // Someone has not confirmed the last write yet.
  bool waiting() const;

 private:
  struct Entry {
    Slices wanted;
    Slices written;
    std::uint32_t seq = 0;         // of the last write
    std::uint32_t confirmed = 0;   // the oldest version that may be in force
    std::uint32_t last_short = 0;  // the latest version that was short
    bool ever_short = false;
    bool must_write = false;
    unsigned refusals = 0;  // in a row
    bool reachable = true;
    bool possibly_short() const { return ever_short && last_short >= confirmed; }
  };

  bool another_possibly_short(ClientId client) const;

  std::map<ClientId, Entry> entries_;
};

}  // namespace switchyard::monitor
