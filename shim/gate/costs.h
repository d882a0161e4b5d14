// What kernels cost the GPU, as far as some launch of them was timed. Pure: no clock, no driver.
//
// Concept. A framework's step has kernels of five microseconds and of two milliseconds, and an
// average says little of either. A launch is identified by its kernel, its grid and the kernel
// before it in its stream. A step repeats itself, so these three stand for "this line of the
// program". The first launch of each is to be timed (timing.h), and some later ones. Other work on
// the GPU only ever adds time, so the shortest is nearest to the truth.
//
// The arguments are not told apart, and what a loop in a kernel does depends on them. So one launch
// says little against what is known, and a batch is bounded by the average, too (Sum).
//
// Threading: look() from any thread, without a lock; whoever calls the others locks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace switchyard::shim::costs {

inline constexpr std::uint32_t kEntries = 2048;
// However little its launches cost, a batch has no more than so many times the usual number.
inline constexpr std::uint32_t kMostOverUsual = 8;
inline constexpr std::uint32_t kTimedEvery = 256;  // launches of one key; before, at 2, 4, 8 ...

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t more) {
  hash = (hash ^ more) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

struct Kernel {
  const void* function = nullptr;  // null: a copy, a set or a graph, which have no such cost
  unsigned x = 0, y = 0, z = 0;    // its grid
};

// Never 0, but for what is no kernel.
inline std::uint64_t hash_of(const Kernel& kernel) {
  if (kernel.function == nullptr) return 0;
  // One by one: addresses lie so close that another's, exclusive-or its grid, would be the same.
  const std::uint64_t hash = mix(0, reinterpret_cast<std::uintptr_t>(kernel.function));
  return mix(mix(mix(hash, kernel.x), kernel.y), kernel.z) | 1;
}

constexpr std::uint64_t key_of(std::uint64_t kernel, std::uint64_t before) {
  return mix(mix(0, kernel), before) | 1;
}

struct Cost {
  std::uint32_t ns = 0;   // 0: not known
  std::uint64_t key = 0;  // whose it is
  bool wanted = false;    // time this launch
};

class Table {
 public:
  Cost look(std::uint64_t key) {
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(key + i) % kEntries];
      const std::uint64_t there = entry.key.load(std::memory_order_acquire);
      if (there == 0) return {0, key, true};
      if (there != key) continue;
      const std::uint32_t uses = entry.uses.load(std::memory_order_relaxed) + 1;
      entry.uses.store(uses, std::memory_order_relaxed);
      const bool early = uses < kTimedEvery && (uses & (uses - 1)) == 0;
      return {entry.ns.load(std::memory_order_relaxed), key, early || uses % kTimedEvery == 0};
    }
    return {0, key, true};  // no room (yet): it goes by the average
  }

  // It is being timed: others need not. False: there is no room for it. A program whose shapes
  // change fills the table with what never comes again, so after many of these all are forgotten.
  bool expect(std::uint64_t key) {
    Entry* entry = place(key);
    if (entry == nullptr) {
      if (++refused_ >= kEntries) forget();
      return false;
    }
    if (entry->key.load(std::memory_order_relaxed) == key) return true;
    entry->ns.store(0, std::memory_order_relaxed);
    entry->uses.store(1, std::memory_order_relaxed);
    entry->key.store(key, std::memory_order_release);
    return true;
  }

  // It took so long. Less is believed sooner than more, and nothing beyond measure.
  void learn(std::uint64_t key, std::uint32_t ns) {
    Entry* entry = place(key);
    if (entry == nullptr || entry->key.load(std::memory_order_relaxed) != key) return;
    const std::uint32_t known = entry->ns.load(std::memory_order_relaxed);
    entry->ns.store(known == 0 ? ns : between(known, ns), std::memory_order_relaxed);
  }

  void forget() {
    for (Entry& entry : entries_) entry.key.store(0, std::memory_order_release);
    refused_ = 0;
  }

 private:
  static std::uint32_t between(std::uint32_t known, std::uint32_t ns) {
    if (ns < known) return known - (known - ns) / 2;
    const std::uint64_t most = std::uint64_t{known} * 4;
    return known + static_cast<std::uint32_t>((std::min<std::uint64_t>(ns, most) - known) / 4);
  }

  static constexpr std::uint32_t kProbes = 8;

  struct Entry {
    std::atomic<std::uint64_t> key{0};  // 0: free
    std::atomic<std::uint32_t> ns{0};
    std::atomic<std::uint32_t> uses{0};
  };

  // Its entry or the one that it would get; null: no room.
  Entry* place(std::uint64_t key) {
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(key + i) % kEntries];
      const std::uint64_t there = entry.key.load(std::memory_order_relaxed);
      if (there == 0 || there == key) return &entry;
    }
    return nullptr;
  }

  Entry entries_[kEntries];
  std::uint32_t refused_ = 0;
};

// The work of one batch, against the spacing that is asked for.
class Sum {
 public:
  void add(Cost cost) {
    if (cost.ns != 0) {
      known_ns_ += cost.ns;
    } else {
      ++unknown_;
    }
  }

  bool knows() const { return known_ns_ != 0; }

  // `usual` launches are worth the spacing as far as the average goes.
  bool fills(std::uint64_t spacing_ns, std::uint32_t usual) const {
    return known_ns_ * usual + unknown_ * spacing_ns >= spacing_ns * usual;
  }

  // Whether what is there should end before a launch of this cost.
  bool overflows(Cost more, std::uint64_t spacing_ns, std::uint32_t usual) const {
    if (more.ns == 0 || usual == 0) return false;
    return known_ns_ + unknown_ * spacing_ns / usual + more.ns > spacing_ns + spacing_ns / 4;
  }

 private:
  std::uint64_t known_ns_ = 0;
  std::uint32_t unknown_ = 0;
};

}  // namespace switchyard::shim::costs
