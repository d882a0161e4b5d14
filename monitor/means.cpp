#include "monitor/means.h"

namespace switchyard::monitor {
namespace {

// Why a GPU gets no slices; null when it does.
const char* against_slices(const MeansFacts& facts) {
  if (facts.mps) return "MPS runs on this GPU: its server owns the channel groups";
  if (facts.slices_refused && !facts.slices_accepted) return "the driver refuses slices";
  return nullptr;
}

const char* against_gates(const MeansFacts& facts) {
  return facts.gates_refused && !facts.gates_ready ? "the driver refuses gates" : nullptr;
}

}  // namespace

MeansInForce means_in_force(Means chosen, const MeansFacts& facts) {
  if (chosen == Means::kNone) return {false, false, "turned off by 'switchyard means none'"};
  const char* no_slices = against_slices(facts);
  const char* no_gates = against_gates(facts);
  if (chosen == Means::kSlice) {
    return {no_slices == nullptr, false, no_slices != nullptr ? no_slices : "slices were chosen"};
  }
  if (chosen == Means::kGate) {
    return {false, no_gates == nullptr, no_gates != nullptr ? no_gates : "gates were chosen"};
  }
  const char* reason = no_slices != nullptr    ? no_slices
                       : no_gates != nullptr   ? no_gates
                       : facts.slices_accepted ? "slices are accepted by the driver"
                                               : "slices will be used; nobody needed one yet";
  return {no_slices == nullptr, no_gates == nullptr, reason};
}

}  // namespace switchyard::monitor
