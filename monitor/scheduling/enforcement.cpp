#include "monitor/scheduling/enforcement.h"

#include <cstdlib>

namespace switchyard::monitor {
namespace {

// Why a GPU gets no slices; null when it does.
const char* against_slices(const MeansFacts& facts) {
  if (facts.mps) return "MPS runs on this GPU: its server owns the channel groups";
  if (facts.old_driver) return "the driver is older than 535: its channel groups are not seen";
  return facts.slices.hopeless() ? "the driver or a sandbox refuses slices to every client here"
                                 : nullptr;
}

const char* against_gates(const MeansFacts& facts) {
  return facts.gates.hopeless() ? "the driver refuses gates to every client here" : nullptr;
}

// The remark where both are in force.
const char* about_both(const MeansFacts& facts) {
  if (facts.slices.mixed()) return "the driver or a sandbox refuses slices to some clients";
  if (facts.foreign) {
    return "other processes use this GPU, perhaps under another monitor: no slice is below the "
           "driver's default";
  }
  if (facts.gates.mixed()) return "the driver refuses gates to some clients: these take no turns";
  return facts.slices.taken ? "slices are accepted by the driver"
                            : "slices will be used as soon as a job needs one";
}

}  // namespace

bool too_old_for_slices(const std::string& driver_version) {
  constexpr long kFirst = 535;
  char* end = nullptr;
  const long branch = std::strtol(driver_version.c_str(), &end, 10);
  return branch > 0 && *end == '.' && branch < kFirst;
}

MeansInForce means_in_force(Means chosen, const MeansFacts& facts) {
  if (chosen == Means::kNone) return {false, false, "turned off by 'switchyard backend none'"};
  const char* no_slices = against_slices(facts);
  const char* no_gates = against_gates(facts);
  if (chosen == Means::kSlice) {
    return {no_slices == nullptr, false, no_slices != nullptr ? no_slices : "slices were chosen"};
  }
  if (chosen == Means::kGate) {
    return {false, no_gates == nullptr, no_gates != nullptr ? no_gates : "gates were chosen"};
  }
  const char* reason = no_slices != nullptr  ? no_slices
                       : no_gates != nullptr ? no_gates
                                             : about_both(facts);
  return {no_slices == nullptr, no_gates == nullptr, reason};
}

}  // namespace switchyard::monitor
