// How many threads are inside of something, spread over cache lines.
//
// Threading: any thread. A thread enters before it looks whether the admission is closed, and the
// closer closes first and counts then. Both sides are sequentially consistent, so the closer sees
// the thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace switchyard::shim {

class ThreadCount {
 public:
  // `own`: an address of the calling thread's own, the same at enter and leave.
  void enter(const void* own) { shard(own).inside.fetch_add(1, std::memory_order_seq_cst); }
  void leave(const void* own) { shard(own).inside.fetch_sub(1, std::memory_order_release); }
  bool empty() const {
    for (const Shard& shard : shards_) {
      if (shard.inside.load(std::memory_order_seq_cst) != 0) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned kShards = 16;
  struct alignas(64) Shard {
    std::atomic<std::uint32_t> inside{0};
  };
  Shard& shard(const void* own) {
    const auto thread = reinterpret_cast<std::uintptr_t>(own);
    return shards_[(thread >> 12 ^ thread >> 20) % kShards];
  }
  Shard shards_[kShards];
};

}  // namespace switchyard::shim
