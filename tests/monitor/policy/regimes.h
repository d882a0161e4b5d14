// A server that changes its shape a hundred times beside a training. It has a prompt, then tokens,
// or a batch that grows, or it begins to use graphs.
//
// Threading: one test, one thread.
#pragma once

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "bench/simulate/simulation.h"

namespace switchyard::simulate {

struct Regimes {
  explicit Regimes(JobSpec first) : server(std::move(first)) {
    how.sample_s = 0.02;
    how.seconds = 3;
  }
  double between(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  }
  // Every other phase is as `eager` makes it; the others replay graphs, and rest between them.
  template <typename Eager>
  void change(Eager eager) {
    for (int change = 0; change < 100; ++change) {
      if (change % 2 == 1) {
        server.phases.push_back(eager());
      } else {
        const double gpu_ms = between(0.8, 8);
        server.phases.push_back({how.seconds, between(0.3, 0.6) * gpu_ms, gpu_ms, 1});
      }
      how.seconds += between(1.5, 4);
    }
  }
  // `check` gets each phase, and its samples: the first a second after it began, and the end.
  template <typename Check>
  void each_phase(Check check) const {
    for (std::size_t at = 0; at < server.phases.size(); ++at) {
      const Phase& phase = server.phases[at];
      const double end = at + 1 < server.phases.size() ? server.phases[at + 1].from_s : how.seconds;
      const auto first = static_cast<std::size_t>((phase.from_s + 1) / how.sample_s) + 1;
      std::size_t past = first;
      while (static_cast<double>(past) * how.sample_s < end) ++past;
      check(phase, first, past);
    }
  }

  JobSpec server;
  Settings how;
  std::mt19937_64 random{16};
};

}  // namespace switchyard::simulate
