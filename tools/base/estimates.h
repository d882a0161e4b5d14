// How far an estimate of a job's part of a GPU may be from the truth.
//
// Concept. Where time slices divide a GPU, nobody measures a job's part. `bench/run.py bills`
// compared the estimates with counted kernels: over seconds, the worst was wrong by less than two
// thirds of itself (docs/guide/history.md).
#pragma once

namespace switchyard::tools {

inline constexpr double kEstimateError = 2.0 / 3;

}  // namespace switchyard::tools
