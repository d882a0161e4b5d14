// By what the policy is enforced on a GPU: slices, gates, both or nothing, and why.
//
// Concept. The monitor's owner chooses, `auto` unless somebody has a reason; what the driver and
// the machine allow is a fact. Out of the two comes what is in force:
//
//     slice+gate   slices give the shares, gates what slices can't: turns, ceilings
//     gate         slices are refused here, or MPS owns the channel groups
//     slice        chosen, or the driver refuses the gate's words
//     none         chosen, or nothing works
//
// A refusal is its client's own affair. One in a sandbox that lets no slice through doesn't turn
// slices off for the others, and can't keep them from ever being asked. It keeps the driver's own
// slice. Only when nobody is left who might take them, they are out of force.
//
// A pause by a person and memory quotas hold under every one of them.
//
// Threading: pure functions over plain values.
#pragma once

#include <cstdint>
#include <string>

namespace switchyard::monitor {

// In the order of kMeansNames (settings.h).
enum class Means : std::uint8_t { kAuto, kSlice, kGate, kNone };

// The answers to slices, or to gates, of the clients that have a context on a GPU.
struct MeansAnswers {
  bool taken = false;    // by some client
  bool refused = false;  // to some client
  bool unasked = false;  // somebody never needed one
  void add(bool takes, bool took) { (!takes ? refused : took ? taken : unasked) = true; }
  bool hopeless() const { return refused && !taken && !unasked; }
  bool mixed() const { return refused && !hopeless(); }
};

// The facts about one GPU.
struct MeansFacts {
  bool mps = false;         // NVML names its server, or the driver told every client
  bool old_driver = false;  // too_old_for_slices()
  MeansAnswers slices = {}, gates = {};
  bool foreign = false;  // processes that are not this monitor's compute there
};

struct MeansInForce {
  bool slices = false;
  bool gates = false;
  const char* reason = "";
  const char* name() const {
    return slices && gates ? "slice+gate" : slices ? "slice" : gates ? "gate" : "none";
  }
};

// Whether the library sees no channel group under the driver of that version, such as "530.30.02".
// Before 535 the driver's allocation calls had another layout (shim/slices/rm.h). False for a text
// that is no version.
bool too_old_for_slices(const std::string& driver_version);

MeansInForce means_in_force(Means chosen, const MeansFacts& facts);

}  // namespace switchyard::monitor
