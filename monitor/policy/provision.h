// The weight of a job with `--share auto`: how much of the GPU brings it something. The rule alone.
//
// Concept. More weight brings a job more iterations per second, until something else bounds it: its
// CPU, its data, or the whole GPU. The *knee* is the smallest weight that brings nearly all. The
// weight goes up by doubling while each brings kGain, then down while it costs no more than kLoss
// of the best that was seen. Weights are levels: two of them double it.
//
//     phase      the rate of a window at a level               → phase      level
//     kStart     known: it is the reference                    → kUp        two more
//     kUp        kGain above the reference: it is the new one  → kUp        two more
//     kUp        less, or no more can be had                   → kDown      two below the reference
//     kDown      at most kLoss below the best                  → kDown      two fewer
//     kDown      less, or no fewer can be had                  → kFine      one more
//     kFine      at most kLoss below the best                  → kSettled   the same
//     kFine      less                                          → kSettled   one more
//     kSettled   kMoved from what it was, in two windows       → kStart     the same
//     kSettled   it has been for kProbeEvery                   → kStart     the same
//
// Only beside other jobs that work is anything looked for: alone a job has the whole GPU at every
// weight. A search that is interrupted by that begins anew. A window begins once a weight is in
// force, and lasts for kWindow, and for kIterations. So the knee is found within a minute for
// iterations of up to half a second. It is looked for anew every kProbeEvery, because a knee may
// move without a sign of it at the present weight.
//
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::provision {

inline constexpr double kGain = 0.01;
inline constexpr double kLoss = 0.02;
inline constexpr double kMoved = 0.05;
inline constexpr int kLeast = -8;  // a weight of 1/16
inline constexpr int kMost = 14;   // of 128: beyond that slices can't have the ratio
inline constexpr Time kSettles = std::chrono::milliseconds(500);
inline constexpr Time kWindow = std::chrono::milliseconds(2500);
inline constexpr unsigned kIterations = 4;
inline constexpr Time kProbeEvery = std::chrono::seconds(30);

double weight_of(int level);

struct Look {
  // The iterations that the job has begun since the last look, of the rank that is looked at.
  std::vector<Time> began = {};
  bool broken = false;     // the first does not follow on what was told last
  bool held = false;       // its rate says nothing now
  bool contended = false;  // another job works on its GPUs
  double most = 1000;      // the largest weight that it may have
};

enum class Phase : std::uint8_t { kStart, kUp, kDown, kFine, kSettled };

struct State {
  Phase phase = Phase::kStart;
  int level = 0;
  int reference_level = 0;
  double reference = 0;  // iterations per second; kSettled: of the first window, 0: none yet
  double best = 0;
  bool moved = false;  // kSettled: in the last window
  Time since{0};       // of the phase kSettled
  // The window.
  Time opens{0};  // not before
  Time first{0};  // 0: none yet
  Time last{0};
  unsigned iterations = 0;
};

void next(State& state, const Look& look, Time now);

}  // namespace switchyard::monitor::provision
