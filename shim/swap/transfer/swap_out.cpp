#include <stdlib.h>

#include <algorithm>

#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/parking.h"
#include "shim/swap/transfer/digest.h"
#include "shim/swap/transfer/handover.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap {
namespace {

// A chunk whose copy is in flight, or waits for its place.
struct Flight {
  Chunk* chunk = nullptr;
  CUdeviceptr address = 0;
  pinned_pool::HostPiece to = {};  // the chunk's own once it has arrived, or
  parking::ParkedPiece parked = {};
  Digest digest = {};
  Digest first = {};  // of its first piece
};

// It is all zero, or the host has it: by its digest now, if that is `known`.
bool needs_no_copy(const Chunk& chunk, bool known, const Digest& now) {
  return known && (now == Digest{} || (chunk.host && chunk.digest == now));
}

// Whether a chunk that the host has leaves or stays.
enum class Then : bool { kLeaves, kStays };

class SwapOut {
 public:
  SwapOut(unsigned lane, Digests& digests, Resident resident, MayPark may_park, Then then)
      : lane_(lane), digests_(digests), resident_(resident), may_park_(may_park), then_(then) {
    fail(stream_.result());
  }

  void put(Chunk& chunk, CUdeviceptr address) {
    if (failed()) return;
    Digest now;
    const bool known = digests_.answer(chunk.bytes, now);
    if (then_ == Then::kStays && !known) return;  // nobody could tell whether its copy is right
    if (is_in_host(chunk, known && digests_.trusted(), now)) {
      if (then_ == Then::kStays) {
        chunk.zero = false;
      } else if (leave(chunk, address)) {
        moved_.skipped += chunk.bytes;
      }
    } else {
      copy(chunk, address, now);
    }
  }

  Moved finish() {
    park_run();
    while (oldest_ != next_) land();
    leave_parked();
    return moved_;
  }

 private:
  bool failed() const { return moved_.stop != Stop::kNothing; }
  void fail(CUresult result) {
    if (result == CUDA_SUCCESS || failed()) return;
    moved_.stop = Stop::kDriver;
    moved_.result = result;
  }

  // Whether nothing has to be copied: it is all zero, or has not changed since it came. A chunk
  // that has not arrived has not changed either.
  static bool is_in_host(Chunk& chunk, bool known, const Digest& now) {
    if (chunk.contents_pending) return true;
    chunk.zero = known && now == Digest{};
    if (chunk.zero) pinned_pool::give_back(chunk.host);
    return needs_no_copy(chunk, known, now);
  }

  // `now`: zeros when it isn't known.
  void copy(Chunk& chunk, CUdeviceptr address, const Digest& now) {
    const Flight flight{
        .chunk = &chunk, .address = address, .digest = now, .first = digests_.first()};
    if (moved_.unparked != CUDA_SUCCESS || !may_park_(lane_, chunk.bytes)) {
      begin(flight);
      return;
    }
    run_[waiting_++] = flight;
    if (waiting_ == longest_) park_run();
  }

  // Those that wait begin to leave for another GPU, or for the host where that has no memory.
  void park_run() {
    if (waiting_ == 0) return;
    parking::ParkedPiece pieces[kLongestRun];
    for (unsigned i = 0; i < waiting_; ++i) {
      pieces[i].bytes = run_[i].chunk->bytes;
      if (failed()) parking::uncount(lane_, pieces[i].bytes);
    }
    if (failed()) return;
    {
      const Spending spending(moved_.made_ns);
      moved_.unparked = parking::take(lane_, pieces, waiting_);
    }
    for (unsigned i = 0; i < waiting_; ++i) {
      run_[i].parked = pieces[i];
      begin(run_[i]);
    }
    waiting_ = 0;
    longest_ = std::min(2 * longest_, kLongestRun);
  }

  void begin(Flight flight) {
    if (next_ - oldest_ == kDepth) land();
    if (failed()) {
      parking::give_back(flight.parked);
      return;
    }
    const CUdeviceptr address = flight.address;
    const std::uint64_t bytes = flight.chunk->bytes;
    if (!find_place(flight)) {
      moved_.stop = Stop::kNoHostRoom;
      return;
    }
    CUresult result =
        flight.parked
            ? driver().cuMemcpyDtoDAsync_v2(flight.parked.at, address, bytes, stream_.stream())
            : driver().cuMemcpyDtoHAsync_v2(flight.to.at, address, bytes, stream_.stream());
    if (result == CUDA_SUCCESS) result = stream_.mark(next_);
    flights_[next_++ % kDepth] = flight;
    fail(result);
    // Later chunks may be left out as soon as the GPU has been seen to compute right.
    if (!digests_.trusted() && flight.first != Digest{}) land();
  }

  // In the host, unless it has one on another GPU.
  bool find_place(Flight& flight) {
    Chunk& chunk = *flight.chunk;
    if (flight.parked) {
      pinned_pool::give_back(chunk.host);  // of older contents
      return true;
    }
    flight.to = chunk.host;
    chunk.host = {};
    if (!flight.to) {
      flight.to = then_ == Then::kStays ? pinned_pool::take(lane_, chunk.bytes)
                                        : find_piece(lane_, chunk.bytes);
    }
    // Before a move to another GPU its slab may have been unpinned.
    const Spending spending(moved_.pinned_ns);
    if (flight.to) pinned_pool::pin_for_copy(flight.to);
    return static_cast<bool>(flight.to);
  }

  // Whether the GPU computes right is seen where the CPU can read what was copied.
  void check_parked(const Flight& flight) {
    if (digests_.trusted() || flight.first == Digest{}) return;
    void* piece = ::malloc(digest::kPieceBytes);
    if (piece == nullptr) return;
    const CUresult copied = driver().cuMemcpyDtoHAsync_v2(piece, flight.parked.at,
                                                          digest::kPieceBytes, stream_.stream());
    const CUresult arrived = stream_.wait_for_all();
    if (copied == CUDA_SUCCESS && arrived == CUDA_SUCCESS) digests_.check(flight.first, piece);
    ::free(piece);
  }

  // The oldest copy has arrived, or failed: then its chunk stays.
  void land() {
    Flight flight = flights_[oldest_ % kDepth];
    if (!failed()) {
      const Spending spending(moved_.waited_ns);
      fail(stream_.wait(oldest_));
    }
    ++oldest_;
    if (failed()) {
      stream_.wait_for_all();  // nothing may write into a piece that is given back
      pinned_pool::give_back(flight.to);
      parking::give_back(flight.parked);
      return;
    }
    if (flight.parked) {
      check_parked(flight);
    } else {
      digests_.check(flight.first, flight.to.at);
    }
    Chunk& chunk = *flight.chunk;
    chunk.host = flight.to;
    chunk.parked = flight.parked;
    chunk.digest = flight.digest;
    if (then_ == Then::kStays) {
      moved_.copied += chunk.bytes;
      return;
    }
    // The driver gives memory back in half the time while no copy runs. But a job that is handed
    // it comes meanwhile.
    if (chunk.parked && !handover::offers(lane_)) return;
    if (leave(chunk, flight.address)) {
      moved_.copied += chunk.bytes;
      if (chunk.parked) moved_.parked += chunk.bytes;
    } else {
      drop_copies(chunk);
    }
  }

  // Gives up the memory here of chunks that have been parked. One without its contents has been
  // parked before, and only its mapping could not be ended.
  void leave_parked() {
    each_chunk(lane_, [&](Chunk& chunk, CUdeviceptr address, const Range&) {
      if (chunk.parked && chunk.handle != 0 && !chunk.contents_pending)
        leave_parked(chunk, address);
    });
  }

  void leave_parked(Chunk& chunk, CUdeviceptr address) {
    const Spending spending(moved_.gave_ns);
    if (const CUresult result = send_away(chunk, address); result != CUDA_SUCCESS) {
      drop_copies(chunk);
      fail(result);
      return;
    }
    moved_.copied += chunk.bytes;
    moved_.parked += chunk.bytes;
    resident_(lane_, -signed_bytes(chunk));
  }

  bool leave(Chunk& chunk, CUdeviceptr address) {
    const Spending spending(moved_.gave_ns);
    const CUmemGenericAllocationHandle handle = chunk.handle;
    if (const CUresult result = send_away(chunk, address); result != CUDA_SUCCESS) {
      chunk.zero = chunk.zero && chunk.contents_pending;
      fail(result);
      return false;
    }
    chunk.contents_pending = false;
    handover::has_left(lane_, address, handle);
    resident_(lane_, -signed_bytes(chunk));
    return true;
  }

  unsigned lane_;
  Digests& digests_;
  Resident resident_;
  MayPark may_park_;
  Then then_;
  CopyStream stream_;
  Flight flights_[kDepth] = {};
  unsigned oldest_ = 0;
  unsigned next_ = 0;
  Flight run_[kLongestRun] = {};  // to be parked, and counted already
  unsigned waiting_ = 0;
  unsigned longest_ = 1;  // the first shall be copied soon
  Moved moved_;
};

void nobody(unsigned, std::int64_t) {}

// Of the chunks that may be copied while they stay: those below an address, the last ranges first.
class Part {
 public:
  Part(unsigned lane, CUdeviceptr end, std::uint64_t bytes)
      : lane_(lane), end_(end), bytes_(bytes) {}

  template <typename Act>
  void each(Act act) {
    std::uint64_t told = 0;
    more_ = false;
    each_leaving(lane_, UINT64_MAX, [&](Chunk& chunk, CUdeviceptr address, const Range& range) {
      if (address >= end_) return;
      more_ = told >= bytes_;
      if (more_) return;
      told += chunk.bytes;
      last_ = address;
      // Memory that a pool may hand out again holds nothing.
      if (range.use != Use::kCached && !chunk.contents_pending) act(chunk, address);
    });
  }
  // The chunks below that are the next one's; 0: none.
  CUdeviceptr next() const { return more_ ? last_ : 0; }

 private:
  unsigned lane_;
  CUdeviceptr end_;
  std::uint64_t bytes_;
  CUdeviceptr last_ = 0;
  bool more_ = false;
};

// `each` is gone through for the bytes and for the digests, and will be for what follows.
template <typename Each>
std::uint64_t bytes_of(Each each) {
  std::uint64_t bytes = 0;
  each([&](Chunk& chunk, CUdeviceptr) { bytes += chunk.bytes; });
  return bytes;
}
template <typename Each>
void ask_for(Digests& digests, Each each) {
  each([&](Chunk& chunk, CUdeviceptr address) { digests.ask(address, chunk.bytes); });
  digests.launch();
}

template <typename Each>
Moved move_all(unsigned lane, Resident resident, MayPark may_park, Then then, Each each) {
  Digests digests(lane, bytes_of(each));
  ask_for(digests, each);
  SwapOut swap_out(lane, digests, resident, may_park, then);
  each([&](Chunk& chunk, CUdeviceptr address) { swap_out.put(chunk, address); });
  return swap_out.finish();
}

}  // namespace

Moved move_out(unsigned lane, std::uint64_t bytes, Resident resident, MayPark may_park) {
  return move_all(lane, resident, may_park, Then::kLeaves, [&](auto act) {
    each_leaving(lane, bytes,
                 [&](Chunk& chunk, CUdeviceptr address, const Range&) { act(chunk, address); });
  });
}

Moved precopy(unsigned lane, CUdeviceptr& below, std::uint64_t bytes) {
  Part part(lane, below, bytes);
  const Moved moved =
      move_all(lane, nobody, parks_nothing, Then::kStays, [&part](auto act) { part.each(act); });
  below = moved.stop == Stop::kNothing ? part.next() : 0;
  return moved;
}

void each_to_copy(unsigned lane, CUdeviceptr& below, std::uint64_t bytes,
                  void (*tell)(unsigned lane, const Chunk& chunk)) {
  Part part(lane, below, bytes);
  const auto each = [&part](auto act) { part.each(act); };
  Digests digests(lane, bytes_of(each));
  ask_for(digests, each);
  each([&](Chunk& chunk, CUdeviceptr) {
    Digest now;
    const bool known = digests.answer(chunk.bytes, now) && digests.trusted();
    if (!needs_no_copy(chunk, known, now)) tell(lane, chunk);
  });
  below = part.next();
}

Moved move_out(unsigned lane, Chunk* chunks, unsigned count, CUdeviceptr address) {
  return move_all(lane, nobody, parks_nothing, Then::kLeaves, [&](auto act) {
    CUdeviceptr at = address;
    for (unsigned i = 0; i < count; ++i) {
      act(chunks[i], at);
      at += chunks[i].bytes;
    }
  });
}

}  // namespace switchyard::shim::swap
