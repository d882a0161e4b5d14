// The host pool's memory: slabs, each of which can be pinned by itself.
//
// Threading: a slab is one thread's at a time.
#pragma once

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/ablation/calls.h"
#include "bench/ablation/print.h"

namespace switchyard::bench::ablation {

inline constexpr std::size_t kSlab = 256 * kMiB;

// Host memory of huge pages, a slab of which can be pinned by itself.
class Slabs {
 public:
  explicit Slabs(std::size_t bytes) : bytes_(bytes), pinned_(bytes / kSlab) {
    void* raw = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
      std::fprintf(stderr, "swap_ablation: the host has no %zu bytes\n", bytes);
      std::exit(1);
    }
    base_ = static_cast<unsigned char*>(raw);
    ::madvise(base_, bytes_, MADV_HUGEPAGE);
    std::memset(base_, 0, bytes_);
  }
  ~Slabs() {
    pin_all(false);
    ::munmap(base_, bytes_);
  }
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  unsigned char* at(std::size_t offset) const { return base_ + offset; }

  void pin(std::size_t slab, bool on) {
    if (pinned_[slab] == on) return;
    unsigned char* const begin = at(slab * kSlab);
    if (on) {
      CU(cuMemHostRegister, begin, kSlab, CU_MEMHOSTREGISTER_PORTABLE);
    } else {
      CU(cuMemHostUnregister, begin);
    }
    pinned_[slab] = on;
  }
  std::size_t count() const { return pinned_.size(); }
  void pin_all(bool on) {
    for (std::size_t slab = 0; slab < pinned_.size(); ++slab) pin(slab, on);
  }

 private:
  std::size_t bytes_;
  unsigned char* base_ = nullptr;
  std::vector<char> pinned_;  // of threads, each with slabs of its own
};

}  // namespace switchyard::bench::ablation
