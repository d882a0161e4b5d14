#include <algorithm>
#include <utility>

#include "shim/clock.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/transfer/digest.h"
#include "shim/swap/transfer/handover.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap {
namespace {

CUresult fill(const Chunk& chunk, CUdeviceptr address, CUstream stream) {
  if (chunk.zero) return driver().cuMemsetD32Async(address, 0, chunk.bytes / 4, stream);
  if (chunk.parked) {
    CUdeviceptr from = 0;
    const CUresult reached = parking::reach(chunk.parked, from);
    if (reached != CUDA_SUCCESS) return reached;
    return driver().cuMemcpyDtoDAsync_v2(address, from, chunk.bytes, stream);
  }
  pinned_pool::pin_for_copy(chunk.host);
  return driver().cuMemcpyHtoDAsync_v2(address, chunk.host.at, chunk.bytes, stream);
}

// Its contents are on the device. Without a digest nobody could tell whether a copy is still right.
void settle(Chunk& chunk) {
  chunk.contents_pending = chunk.zero = false;
  if (chunk.parked) chunk.digest = {};  // what was parked is not kept
  parking::give_back_later(chunk.parked);
  if (chunk.digest == Digest{}) pinned_pool::give_back(chunk.host);
}

void arrive(Chunk& chunk, Moved& moved) {
  (chunk.zero ? moved.skipped : moved.copied) += chunk.bytes;
  if (chunk.parked) moved.parked += chunk.bytes;
  const Spending spending(moved.gave_ns);
  settle(chunk);
}

Stop stop_of(CUresult failure) {
  return failure == CUDA_ERROR_OUT_OF_MEMORY ? Stop::kNoDeviceRoom : Stop::kDriver;
}

class SwapIn {
 public:
  SwapIn(unsigned lane, CopyStream& stream, MayCome may_come, Resident resident)
      : lane_(lane),
        stream_(stream),
        may_come_(may_come),
        resident_(resident),
        most_ready_(pinned_pool::any_unpinned(lane) ? kMostReady : kLongestRun) {
    if (stream.result() != CUDA_SUCCESS) stop(stream.result());
  }

  // One that is away, or arriving.
  void put(Chunk& chunk, CUdeviceptr address, const Range& range) {
    if (moved_.stop == Stop::kDriver || stream_.stream() == nullptr) return;
    const bool comes = chunk.handle == 0;
    if (comes && parking::is_at_home(chunk.parked)) return put_in_place(chunk, address, range);
    if (comes && !bring_one(chunk, address, range.properties)) return;
    const Access access = access_of(range);
    if (count_ != 0 && (address != end() || access.peers != access_.peers)) permit_all();
    access_ = access;
    run_[count_++] = {&chunk, address, comes};
    if (count_ == longest_) {
      permit_all();
      longest_ = std::min(2 * longest_, kLongestRun);
    }
  }

  // Takes the memory that another job hands over, each chunk as soon as it has left there.
  void take_over() {
    std::uint64_t until = monotonic_ns() + kPatienceNs;
    while (moved_.stop == Stop::kNothing && handover::begun(lane_)) {
      const bool over = handover::ended(lane_);
      handover::Arrival next;
      if (handover::next_arrival(lane_, next) && may_come_(lane_, next.chunk->bytes, false)) {
        accept(next);
        until = monotonic_ns() + kPatienceNs;
      } else if (handover::put_in_place(lane_)) {
        continue;
      } else if (over || may_come_(lane_, handover::expected_bytes(lane_), false) ||
                 monotonic_ns() >= until) {
        break;  // nothing more comes, or there is room elsewhere
      } else {
        sleep_ns(50'000);
      }
    }
    handover::drop(lane_);
  }

  Moved finish() {
    fill_all();
    return moved_;
  }

 private:
  // Without a chunk that comes. A whole second: the donor's digests stand behind others' kernels.
  static constexpr std::uint64_t kPatienceNs = 1'000'000'000;

  // Making memory waits for the copies in flight. Where slabs must be pinned for them, so much is
  // made before. Pinning takes longer than copying, and only the rest of it runs beside copies.
  static constexpr unsigned kMostReady = 128;

  // A chunk on the device that nobody may touch yet, nor has it its contents.
  struct Brought {
    Chunk* chunk = nullptr;
    CUdeviceptr address = 0;
    bool came = false;
  };

  CUdeviceptr end() const { return run_[count_ - 1].address + run_[count_ - 1].chunk->bytes; }

  // The first failure of the driver decides about the contents, whatever comes after it.
  void stop(CUresult failure) {
    if (moved_.stop == Stop::kDriver) return;
    moved_.result = failure;
    moved_.stop = stop_of(failure);
  }

  // After a failure of the driver's nothing more is copied.
  void begin_to_fill(Chunk& chunk, CUdeviceptr address) {
    if (moved_.stop == Stop::kDriver) return;
    const Spending spending(moved_.pinned_ns);  // to begin a copy takes no time beside that
    const CUresult filled = fill(chunk, address, stream_.stream());
    chunk.contents_queued = filled == CUDA_SUCCESS;
    if (chunk.contents_queued) return;
    moved_.stop = Stop::kDriver;
    moved_.result = filled;
  }

  void accept(const handover::Arrival& next) {
    Chunk& chunk = *next.chunk;
    resident_(lane_, signed_bytes(chunk));
    handover::accept(lane_, next);
    chunk.contents_pending = true;
    chunk.contents_queued = false;
    moved_.taken += chunk.bytes;
    begin_to_fill(chunk, next.address);
  }

  // Queue all copies before waiting for room.
  bool may_come(std::uint64_t bytes) {
    if (count_ + ready_count_ != 0 && may_come_(lane_, bytes, false)) return true;
    fill_all();
    return moved_.stop == Stop::kNothing && may_come_(lane_, bytes, true);
  }

  bool bring_one(Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
    // Nor a smaller one behind it: the same ones move every time.
    full_ = full_ || moved_.stop != Stop::kNothing || !may_come(chunk.bytes);
    if (full_) return false;
    resident_(lane_, signed_bytes(chunk));
    const Spending spending(moved_.made_ns);
    const CUresult brought = bring(chunk, address, properties);
    if (brought == CUDA_SUCCESS) return true;
    resident_(lane_, -signed_bytes(chunk));
    stop(brought);
    return false;
  }

  // With its contents, and without a copy: there may be no room for it twice.
  void put_in_place(Chunk& chunk, CUdeviceptr address, const Range& range) {
    full_ = full_ || moved_.stop != Stop::kNothing || !may_come(chunk.bytes);
    if (full_) return;
    const Spending spending(moved_.made_ns);
    const CUresult back = put_back(chunk, address, access_of(range));
    if (back != CUDA_SUCCESS) return stop(back);
    resident_(lane_, signed_bytes(chunk));
    moved_.skipped += chunk.bytes;
  }

  void permit_all() {
    if (count_ == 0) return;
    const CUresult permitted = permit_run();
    for (unsigned i = 0; i < count_; ++i) {
      const Brought& brought = run_[i];
      Chunk& chunk = *brought.chunk;
      chunk.contents_pending = true;
      chunk.contents_queued = false;
      if (permitted == CUDA_SUCCESS) {
        ready_[ready_count_++] = brought;
      } else if (brought.came && send_away(chunk, brought.address) == CUDA_SUCCESS) {
        chunk.contents_pending = false;
        resident_(lane_, -signed_bytes(chunk));
      }
    }
    if (permitted != CUDA_SUCCESS) stop(permitted);
    count_ = 0;
    if (ready_count_ + kLongestRun > most_ready_) fill_ready();
  }

  void fill_ready() {
    for (unsigned i = 0; i < ready_count_; ++i) begin_to_fill(*ready_[i].chunk, ready_[i].address);
    ready_count_ = 0;
  }

  void fill_all() {
    permit_all();
    fill_ready();
  }

  CUresult permit_run() {
    const Spending spending(moved_.made_ns);
    const CUdeviceptr begin = run_[0].address;
    return permit(begin, end() - begin, access_);
  }

  unsigned lane_;
  CopyStream& stream_;
  MayCome may_come_;
  Resident resident_;
  Moved moved_;
  bool full_ = false;
  Brought run_[kLongestRun];  // they follow each other
  unsigned count_ = 0;
  unsigned longest_ = 1;       // the first shall be copied soon
  Access access_ = {};         // of what is in the run
  Brought ready_[kMostReady];  // whose contents may be copied
  unsigned ready_count_ = 0;
  unsigned most_ready_;
};

}  // namespace

CUresult pour(const Chunk* chunks, unsigned count, CUdeviceptr address) {
  CopyStream stream;
  CUresult result = stream.result();
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = fill(chunks[i], address, stream.stream());
    address += chunks[i].bytes;
  }
  // Nothing may be in flight when it is taken away again.
  const CUresult arrived = stream.stream() != nullptr ? stream.wait_for_all() : CUDA_SUCCESS;
  return result != CUDA_SUCCESS ? result : arrived;
}

Moved move_in(unsigned lane, MayCome may_come, Resident resident) {
  CopyStream stream;
  SwapIn swap_in(lane, stream, may_come, resident);
  const auto put = [&](auto which) {
    each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const Range& range) {
      if (which(chunk)) swap_in.put(chunk, address, range);
    });
  };
  // A chunk that could not be taken away again after a failed copy is there already, without its
  // contents. Such chunks come also where there is no room for more.
  put([](const Chunk& chunk) { return chunk.contents_pending; });
  swap_in.take_over();
  put([](const Chunk& chunk) { return chunk.handle == 0; });
  Moved moved = swap_in.finish();
  CUresult arrived = CUDA_SUCCESS;
  if (stream.stream() != nullptr) {
    const Spending spending(moved.waited_ns);
    arrived = stream.wait_for_all();
  }
  if (moved.stop == Stop::kNothing && arrived != CUDA_SUCCESS) {
    moved.stop = Stop::kDriver;
    moved.result = arrived;
  }
  const bool copied = moved.stop != Stop::kDriver;  // short of room, what was copied is right
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const Range&) {
    if (!chunk.contents_pending) return;
    // One that is here since an earlier move may not have been reached by this one.
    if (std::exchange(chunk.contents_queued, false) && copied && arrived == CUDA_SUCCESS) {
      arrive(chunk, moved);
    } else if (send_away(chunk, address) == CUDA_SUCCESS) {
      chunk.contents_pending = false;
      resident(lane, -signed_bytes(chunk));
    }
  });
  leave_kept(lane);
  return moved;
}

}  // namespace switchyard::shim::swap
