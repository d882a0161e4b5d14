// How many launches may stand between two waits. Pure: no clock, no driver, no page.
//
// Concept. A wait in a stream stops all work behind it. So after a gate closes, the GPU is quiet
// once the work between two waits is done. The monitor wants that in microseconds of GPU time, but
// we can only count launches. So the GPU time of a launch is estimated. Launches are numbered in
// batches, and the GPU writes a batch's number when it is done. Between two looks that find the
// stream at work, wall time is GPU time.
//
//     looked while work was left            what ended, over the time that it took: averaged in
//     looked when a wait of the CPU ended   the same, exact
//     looked later, nothing was left        the time holds idleness: only an upper bound
//
// Threading: plain values; the caller locks.
#pragma once

#include <cstdint>

namespace switchyard::shim::spacing {

inline constexpr std::uint32_t kFirstLaunches = 4;   // while nothing is known
inline constexpr std::uint32_t kMostLaunches = 256;  // whatever is known
// Batches whose size is remembered: as many as a full queue of the driver's may hold.
inline constexpr std::uint32_t kRemembered = 1024;
// One look counts for so much more than what is known: the time may hold a shut gate.
inline constexpr std::uint64_t kMostSlower = 4;

class Pace {
 public:
  // Batch `number` (one more than the last) ended with so many launches. Graphs are no measure of a
  // launch: 0. `by_cost`: costs were known and counted (costs.h), so a small batch is no step down.
  void ended(std::uint32_t number, std::uint32_t launches, bool by_cost = false) {
    sizes_[number % kRemembered] = static_cast<std::uint16_t>(launches);
    if (!by_cost || launches > last_size_) last_size_ = launches;
  }

  // `done` of `number` batches are done now. `exact`: just now, not some time ago.
  void look(std::uint32_t done, std::uint32_t number, bool exact, std::uint64_t now_ns) {
    const std::uint32_t batches = done - done_;
    if (static_cast<std::int32_t>(batches) < 0) return;  // whoever wrote it, numbers only grow
    const bool left = done != number;
    if (batches != 0) {
      // A batch that isn't remembered counts with the last size, rather than as no measure at all.
      // Small batches fill the queue, and would stay small for ever.
      const std::uint64_t launches = number - done_ <= kRemembered
                                         ? launches_since(done)
                                         : std::uint64_t{batches} * last_size_;
      if (launches != 0 && now_ns > seen_ns_) sample(now_ns - seen_ns_, launches, left || exact);
      done_ = done;
      seen_ns_ = now_ns;
    } else if (!left) {
      seen_ns_ = now_ns;  // it was idle until now
    }
  }

  // Entries of the stream's queue that the batches after `done`, up to `number`, take as far as we
  // know: launches, wait and write. Counted up to `most`.
  std::uint32_t entries(std::uint32_t done, std::uint32_t number, std::uint32_t most) const {
    std::uint32_t sum = 0;
    for (; done != number && sum < most; ++done) sum += sizes_[(done + 1) % kRemembered] + 2u;
    return sum;
  }

  // Another stream goes on with these numbers, or another page starts with its own.
  void restart(std::uint32_t number, std::uint64_t now_ns) {
    *this = Pace{};
    done_ = number;
    seen_ns_ = now_ns;
  }

  // The size of the next batch. It grows by steps, so that one wrong look does little.
  std::uint32_t launches(std::uint64_t spacing_ns) const {
    if (launches_ == 0) return kFirstLaunches;
    const std::uint64_t each_ns = work_ns_ / launches_;
    const std::uint64_t fit = each_ns == 0 ? kMostLaunches : spacing_ns / each_ns;
    const std::uint64_t step = last_size_ == 0 ? kFirstLaunches : 2ull * last_size_;
    const std::uint64_t most = fit < step ? fit : step;
    if (most > kMostLaunches) return kMostLaunches;
    return most == 0 ? 1 : static_cast<std::uint32_t>(most);
  }

 private:
  // 0 when a graph is among them.
  std::uint64_t launches_since(std::uint32_t done) const {
    std::uint64_t sum = 0;
    for (std::uint32_t number = done_ + 1; number != done + 1; ++number) {
      const std::uint16_t size = sizes_[number % kRemembered];
      if (size == 0) return 0;
      sum += size;
    }
    return sum;
  }

  void sample(std::uint64_t ns, std::uint64_t launches, bool busy) {
    if (launches_ != 0) {
      const std::uint64_t known = work_ns_ / launches_ * launches * kMostSlower;
      if (known != 0 && ns > known) ns = known;
    }
    if (busy) {  // the older half of what is known fades with each look
      work_ns_ = work_ns_ / 2 + ns;
      launches_ = launches_ / 2 + launches;
    } else if (launches_ == 0 || ns / launches < work_ns_ / launches_) {
      work_ns_ = ns;
      launches_ = launches;
    }
  }

  std::uint32_t done_ = 0;     // as of the last look
  std::uint64_t seen_ns_ = 0;  // when that was
  std::uint64_t work_ns_ = 0;  // what `launches_` took
  std::uint64_t launches_ = 0;
  std::uint32_t last_size_ = 0;
  std::uint16_t sizes_[kRemembered] = {};
};

}  // namespace switchyard::shim::spacing
