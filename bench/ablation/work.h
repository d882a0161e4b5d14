// An inference: kernels one after the other, each with the weights of its own chunk.
//
// Concept. A kernel reads its chunk by one row of blocks, or by several, as a product does whose
// output has several rows of tiles. It computes for as long as was asked. The sum of the
// values read tells whether it was the model.
//
// Threading: one thread.
#pragma once

#include "bench/ablation/chunks.h"

namespace switchyard::bench::ablation {

struct Load {
  unsigned reads = 1;   // how often each weight is read
  unsigned rounds = 0;  // of computing for each piece
};

class Work {
 public:
  explicit Work(CUmodule module);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  CUstream stream() const { return stream_; }
  // One kernel, without waiting for it.
  void launch(const Chunks& chunks, unsigned at, const Load& load) const;
  void launch_all(const Chunks& chunks, const Load& load) const;
  void wait() const { CU(cuStreamSynchronize, stream_); }

  // The sum of what all launches since the last time have read. Waits for them.
  std::uint64_t take_sum() const;

  // Words of every kind, each chunk with others. pre: all is on the device.
  void fill(const Chunks& chunks) const;
  void clear(const Chunks& chunks) const;
  // The sum that one pass over it gives.
  std::uint64_t sum(const Chunks& chunks) const;

  // So many rounds that a kernel over the first chunk takes `ms`. pre: it is on the device.
  unsigned rounds_for(const Chunks& chunks, unsigned reads, double ms) const;

 private:
  void fill_chunk(const Chunks& chunks, unsigned at, unsigned word) const;
  double timed_ms(const Chunks& chunks, const Load& load) const;

  CUfunction use_ = nullptr;
  CUfunction fill_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr sum_ = 0;
};

}  // namespace switchyard::bench::ablation
