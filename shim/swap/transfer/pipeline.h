// The pipeline: chunks to the host or to another GPU, and back, several copies in flight.
//
// Concept. On the way out a chunk's memory is given up as soon as its copy has arrived, while the
// next copies run. So a neighbour can take it before the rest is copied. On the way in the next
// chunks are mapped while the copies of the first run, first one, then more and more in one go. To
// permit access may take as long as a copy of another process.
//
//     out   copy ▓▓▓▓ copy ▓▓▓▓ copy ▓▓▓▓          in   map │ copy ▓▓▓▓
//                     unmap │   unmap │                 map, map │ copy ▓▓▓▓ copy ▓▓▓▓
//
// A chunk is parked on another GPU (parking.h) as long as the monitor lets more of them go there.
// Memory there is made for one chunk first, then for more and more of them in one go. A parked
// chunk's own memory is given up after the last copy. Copies over the link and the calls that give
// memory back slow each other down. On the way back the slabs stay until the work has gone on
// (parking::sweep). Chunks that must leave the other GPU move on to the host, while the rest of the
// process stays held. Before contexts go to another GPU, chunks may be copied to the host while
// they stay (precopy()). Then the move copies only those that have changed since. While contexts go
// to another GPU, chunks may stay on the old one without a copy until they follow (keep.cpp).
//
// Memory that another job hands over comes first, in that job's memory (handover.h). The rest is
// made anew.
//
// Whatever fails, each chunk's contents are on the device, in the host or parked, and the chunk
// says where.
//
// Threading: the mover's thread of that GPU alone, holding the ranges.
#pragma once

#include <cstdint>

#include "shim/clock.h"
#include "shim/driver.h"
#include "shim/no_copy.h"
#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::swap {

// Told of each chunk: bytes that come to the device (before they do), or left it (after; negative).
using Resident = void (*)(unsigned lane, std::int64_t bytes);

// What stopped a move.
enum class Stop { kNothing, kNoHostRoom, kNoDeviceRoom, kDriver };

struct Moved {
  Stop stop = Stop::kNothing;
  CUresult result = CUDA_SUCCESS;    // of the call that failed
  std::uint64_t copied = 0;          // bytes
  std::uint64_t skipped = 0;         // that went without a copy: unchanged, or zero
  std::uint64_t taken = 0;           // of what came, in memory that another job handed over
  std::uint64_t kept = 0;            // of that, on the GPU that the contexts leave
  std::uint64_t parked = 0;          // of what was copied: to another GPU, or from there
  CUresult unparked = CUDA_SUCCESS;  // why the driver gave no memory on that GPU
  // Of the mover's time, in nanoseconds: for the log.
  std::uint64_t made_ns = 0;    // making memory and mapping it
  std::uint64_t pinned_ns = 0;  // pinning memory of the host again
  std::uint64_t waited_ns = 0;  // for copies
  std::uint64_t gave_ns = 0;    // unmapping memory and giving it back
};

// Asked before each chunk is parked: whether so much more of the GPU's memory may be, and then it
// is counted (parking.h).
using MayPark = bool (*)(unsigned lane, std::uint64_t bytes);
inline bool parks_nothing(unsigned, std::uint64_t) { return false; }

// Moves chunks of `lane` out until `bytes` have left, the last ranges first. Chunks that may not be
// parked go to the host. pre: a ChunksLock lives, no work can touch them, and a context of that GPU
// is current.
Moved move_out(unsigned lane, std::uint64_t bytes, Resident resident,
               MayPark may_park = parks_nothing);

// Copies chunks of `lane` below the address `below` to the host and leaves them on the device. It
// begins with the last ranges and ends when `bytes` have been gone through. It leaves out chunks
// that the host has already, or that find no room there without another chunk's copy. `below`:
// where it goes on; 0: nowhere. pre: as above.
Moved precopy(unsigned lane, CUdeviceptr& below, std::uint64_t bytes);
// Which of them a move would have to copy all the same: `tell` hears of each whose copy is not
// there, or not right any more. A part at a time, as precopy().
void each_to_copy(unsigned lane, CUdeviceptr& below, std::uint64_t bytes,
                  void (*tell)(unsigned lane, const Chunk& chunk));

// As move_out(), without a copy: the memory stays where it is, as far as `may_keep` lets it, and
// the process keeps it (parking.h). Memory that can't be kept is on the device as before, and
// `unparked` says why. pre: as above, and no thread forks (memory_fd.h).
Moved keep(unsigned lane, std::uint64_t bytes, Resident resident, MayPark may_keep);

// Copies parked chunks of `lane` to the host until `bytes` of them have left the other GPU. All
// that is in the same slabs goes with them. `left` is told after each. pre: as above.
Moved move_on(unsigned lane, std::uint64_t bytes, void (*left)(unsigned lane));

// Asked before each chunk comes: whether so many bytes may. With `waits` it may wait a little for
// that, while the copies of the chunks before run on.
using MayCome = bool (*)(unsigned lane, std::uint64_t bytes, bool waits);

// Brings back what is away: what is handed over, then the first ranges first, until one may not
// come. pre: as above.
Moved move_in(unsigned lane, MayCome may_come, Resident resident);

// The same for chunks of `lane` that are in no range, one behind the other from `address` on;
// nobody is told. pre: as above.
Moved move_out(unsigned lane, Chunk* chunks, unsigned count, CUdeviceptr address);
// Copies what they have in the host to what is mapped there instead, and waits for it. pre: all of
// them are away, and as above.
CUresult pour(const Chunk* chunks, unsigned count, CUdeviceptr address);

// --- the pipeline's own: swap_out.cpp, move_on.cpp and swap_in.cpp ---

// As Resident takes it.
inline std::int64_t signed_bytes(const Chunk& chunk) {
  return static_cast<std::int64_t>(chunk.bytes);
}

// At the end of a move: what is still kept of `lane` is mapped no more.
void leave_kept(unsigned lane);

inline constexpr unsigned kDepth = 4;
// So many chunks at most are given access, or memory of another GPU, by one call.
inline constexpr unsigned kLongestRun = 8;

// Adds the time of its scope to a sum.
class Spending : NoCopy {
 public:
  explicit Spending(std::uint64_t& sum_ns) : sum_ns_(sum_ns), begun_ns_(monotonic_ns()) {}
  ~Spending() { sum_ns_ += monotonic_ns() - begun_ns_; }

 private:
  std::uint64_t& sum_ns_;
  std::uint64_t begun_ns_;
};

// What the copies of one move run on: a stream, with as many events as copies may be in flight. It
// lives for one move: the context that it was made in may end before the next.
class CopyStream : NoCopy {
 public:
  CopyStream() {
    if (driver().cuStreamDestroy_v2 == nullptr || driver().cuEventDestroy_v2 == nullptr) {
      result_ = CUDA_ERROR_NOT_SUPPORTED;
      return;
    }
    result_ = driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : events_) {
      if (result_ == CUDA_SUCCESS) {
        result_ = driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      }
    }
  }
  ~CopyStream() {
    for (CUevent event : events_) {
      if (event != nullptr) driver().cuEventDestroy_v2(event);
    }
    if (stream_ != nullptr) driver().cuStreamDestroy_v2(stream_);
  }

  CUresult result() const { return result_; }
  CUstream stream() const { return stream_; }
  CUresult mark(unsigned at) { return driver().cuEventRecord(events_[at % kDepth], stream_); }
  CUresult wait(unsigned at) { return driver().cuEventSynchronize(events_[at % kDepth]); }
  CUresult wait_for_all() { return driver().cuStreamSynchronize(stream_); }

 private:
  CUresult result_ = CUDA_SUCCESS;
  CUstream stream_ = nullptr;
  CUevent events_[kDepth] = {};
};

}  // namespace switchyard::shim::swap
