// When may an inference begin whose model is away? A prototype of an early start.
//
// Concept. Three orders. The first waits until all has arrived, as the library does. The early one
// runs over memory of the host that is mapped at the model's own addresses. So any kernel may touch
// anything, and the device's memory takes its place once no kernel runs. By chunk, each kernel runs
// behind the copy of its own weights. That is the best there is, but only a program that knows the
// model can do it, as PipeSwitch does.
//
//     all arrived   in ▓▓▓▓▓▓▓▓ │ run ░░░░
//     early         map │ run, reading the host ░░░░░░░░░░ │ in ▓▓▓▓▓▓▓▓
//     by chunk      in ▓▓▓▓▓▓▓▓
//                      run ░░░░░░░░
//
// Threading: one thread.
#pragma once

#include <optional>
#include <string>

#include "bench/ablation/moves.h"
#include "bench/ablation/work.h"

namespace switchyard::bench::ablation {

struct Started {
  double first_ms = 0;     // until the result is there
  double resident_ms = 0;  // until all is on the device
  bool right = false;      // the kernels have read the model
};

class EarlyStart {
 public:
  // A model of so many bytes, which is away from here on. `memory` takes its copy.
  EarlyStart(std::size_t bytes, const Work& work, const HostMemory& memory);
  ~EarlyStart();
  EarlyStart(const EarlyStart&) = delete;
  EarlyStart& operator=(const EarlyStart&) = delete;

  // Why it can't start early here.
  const std::optional<std::string>& refusal() const { return host_.refusal; }
  // The milliseconds that a whole chunk takes in, once all is pinned.
  double chunk_ms();
  unsigned rounds_for(unsigned reads, double ms);

  Started all_arrived(const Load& load);
  Started by_chunk(const Load& load);
  Started early(const Load& load);  // pre: no refusal

 private:
  bool is_right(const Load& load) const { return work_.take_sum() == sum_ * load.reads; }
  void make_image();
  void drop_image();

  const Work& work_;
  Chunks model_;
  Chunks image_;  // where the host's handles are mapped for good: copies come from there
  HostHandles host_;
  Copy copy_;
  std::uint64_t sum_ = 0;
  CUstream stream_ = nullptr;
  std::vector<CUevent> arrived_;
};

}  // namespace switchyard::bench::ablation
