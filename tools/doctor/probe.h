// Do slices work here? Two jobs of unequal weight share one GPU for a moment, and are counted.
//
// Concept. A driver may accept a slice and ignore it, so acceptance alone proves nothing. The probe
// starts two workers through `switchyard run` with weights 4 and 1. It waits until the monitor says
// that their slices are in force, and compares how many kernels each got.
//
// Threading: starts processes; call it from the only thread.
#pragma once

#include <string>

#include "tools/base/monitor_client.h"
#include "tools/doctor/checks.h"

namespace switchyard::tools {

inline constexpr double kProbeAsked = 4.0;
inline constexpr double kProbeTolerance = 0.15;

// What the counts of both workers say. Pure.
Check judge_ratio(const std::string& gpu, double heavy_per_second, double light_per_second);

// Measures on one GPU, given as `status` lists it. Not measured while another job works on it.
Check check_slices(MonitorClient& monitor, const nlohmann::json& gpu);

}  // namespace switchyard::tools
