// A model's memory out to the host and back, in the library's way and in others.
//
// Concept. shim/swap/transfer/pipeline.h has its sizes and its order fixed when it is built, so its
// calls are made here once more. A move has a stream and four events. On the way out a chunk is
// given up as soon as its copy has arrived. On the way in the next chunks are mapped while the
// copies of the first run. Its digests are left out, for they leave out copies.
//
// Threading: one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/ablation/chunks.h"

namespace switchyard::bench::ablation {

inline constexpr std::size_t kChunk = 32u << 20;  // the library's

// Memory of the host that is there before anything moves.
class HostMemory {
 public:
  enum class Kind { kPinned, kPageable };
  HostMemory(std::size_t bytes, Kind kind);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  unsigned char* at(std::size_t offset) const { return base_ + offset; }

 private:
  std::size_t bytes_;
  Kind kind_;
  unsigned char* base_ = nullptr;
};

// Where the copy of a model goes; null: into memory pinned chunk by chunk, when it is needed.
class Copy {
 public:
  explicit Copy(const HostMemory* memory) : memory_(memory) {}
  ~Copy();
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  void* to(const Chunks& chunks, unsigned at);
  const void* from(const Chunks& chunks, unsigned at) const;

 private:
  const HostMemory* memory_;
  std::vector<void*> pinned_;
};

struct Way {
  bool overlaps = true;       // copies with mapping and unmapping
  bool keeps_device = false;  // nothing is unmapped: room for nobody
};

// Each answers with its milliseconds. pre: all is on the device, and away, respectively.
double move_out(Chunks& chunks, Copy& copy, const Way& way);
double move_in(Chunks& chunks, const Copy& copy, const Way& way);

}  // namespace switchyard::bench::ablation
