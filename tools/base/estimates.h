// How far an estimate of a job's part of a GPU may be from the truth.
//
// Concept. Where time slices divide a GPU, nobody measures a job's part. `bench/run.py bills`
// compared the estimates with counted kernels. Over seconds, the worst was wrong by less than two
// thirds of itself (docs/guide/history.md).
#pragma once

namespace switchyard::tools {

// By how much `amount` may be wrong, of which only an estimate is.
constexpr double error_of_estimate(double amount) { return amount * (2.0 / 3); }

}  // namespace switchyard::tools
