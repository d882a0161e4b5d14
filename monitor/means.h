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
// A pause by a person and memory quotas hold under every one of them.
//
// Threading: pure functions over plain values.
#pragma once

#include <cstdint>

namespace switchyard::monitor {

// In the order of kMeansNames (settings.h).
enum class Means : std::uint8_t { kAuto, kSlice, kGate, kNone };

// What is known about one GPU. Nobody may have needed a slice or a gate yet.
struct MeansFacts {
  bool mps = false;  // NVML names its server, or a client was told by the driver
  bool slices_accepted = false, slices_refused = false;  // of some client
  bool gates_ready = false, gates_refused = false;
};

struct MeansInForce {
  bool slices = false;
  bool gates = false;
  const char* reason = "";
  const char* name() const {
    return slices && gates ? "slice+gate" : slices ? "slice" : gates ? "gate" : "none";
  }
};

MeansInForce means_in_force(Means chosen, const MeansFacts& facts);

}  // namespace switchyard::monitor
