#include "shim/swap/pipeline.h"

#include <algorithm>

#include "shim/swap/host_pool.h"
#include "shim/swap/ranges.h"

namespace switchyard::shim::swap {
namespace {

constexpr unsigned kDepth = 4;

bool on_device(const Chunk& chunk) { return chunk.handle != 0; }

std::int64_t signed_bytes(const Chunk& chunk) { return static_cast<std::int64_t>(chunk.bytes); }

// A stream with as many events as copies may be in flight. It lives for one move: the context that
// it was made in may end before the next.
class Lines {
 public:
  Lines() {
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
  ~Lines() {
    for (CUevent event : events_) {
      if (event != nullptr) driver().cuEventDestroy_v2(event);
    }
    if (stream_ != nullptr) driver().cuStreamDestroy_v2(stream_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

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

// A chunk whose copy is in flight.
struct Flight {
  Chunk* chunk = nullptr;
  CUdeviceptr address = 0;
};

class Outward {
 public:
  Outward(unsigned lane, Resident resident) : lane_(lane), resident_(resident) {
    fail(lines_.result());
  }

  bool failed() const { return moved_.stop != Stop::kNothing; }
  std::uint64_t begun() const { return begun_; }

  void put(Chunk& chunk, CUdeviceptr address) {
    if (next_ - oldest_ == kDepth) land();
    if (failed()) return;
    chunk.host = host_pool::take(chunk.bytes);
    if (!chunk.host) {
      moved_.stop = Stop::kNoHostRoom;
      return;
    }
    CUresult result =
        driver().cuMemcpyDtoHAsync_v2(chunk.host.at, address, chunk.bytes, lines_.stream());
    if (result == CUDA_SUCCESS) result = lines_.mark(next_);
    flights_[next_++ % kDepth] = {&chunk, address};
    begun_ += chunk.bytes;
    fail(result);
  }

  Moved finish() {
    while (oldest_ != next_) land();
    return moved_;
  }

 private:
  void fail(CUresult result) {
    if (result == CUDA_SUCCESS || failed()) return;
    moved_.stop = Stop::kDriver;
    moved_.result = result;
  }

  // The oldest copy has arrived, or failed: then its chunk stays.
  void land() {
    const Flight flight = flights_[oldest_ % kDepth];
    if (!failed()) fail(lines_.wait(oldest_));
    ++oldest_;
    if (failed()) {
      lines_.wait_for_all();  // nothing may write into a piece that is given back
      host_pool::give_back(flight.chunk->host);
      return;
    }
    if (!send_away(*flight.chunk, flight.address)) {
      host_pool::give_back(flight.chunk->host);
      fail(CUDA_ERROR_UNKNOWN);
      return;
    }
    moved_.copied += flight.chunk->bytes;
    resident_(lane_, -signed_bytes(*flight.chunk));
  }

  unsigned lane_;
  Resident resident_;
  Lines lines_;
  Flight flights_[kDepth] = {};
  unsigned oldest_ = 0;
  unsigned next_ = 0;
  std::uint64_t begun_ = 0;
  Moved moved_;
};

// On the way in a chunk that is on the device and has its copy still is in flight.
bool in_flight(const Chunk& chunk) { return on_device(chunk) && chunk.host; }

template <typename Do>
void each_chunk(unsigned lane, Do act) {
  for (std::size_t i = 0; i < count(); ++i) {
    Range& range = at(i);
    if (range.lane != lane) continue;
    CUdeviceptr address = range.address;
    for (unsigned c = 0; c < range.count; ++c) {
      act(range.chunks[c], address, range.properties);
      address += range.chunks[c].bytes;
    }
  }
}

Moved bring_all(unsigned lane, Lines& lines, Resident resident) {
  Moved moved{.result = lines.result()};
  if (moved.result != CUDA_SUCCESS) moved.stop = Stop::kDriver;
  const auto bring_one = [&](Chunk& chunk, CUdeviceptr address,
                             const CUmemAllocationProp& properties) {
    if (moved.stop != Stop::kNothing || (on_device(chunk) && !chunk.host)) return;
    // One that could not be taken away again after a copy that failed is there already.
    const bool comes = !on_device(chunk);
    if (comes) resident(lane, signed_bytes(chunk));
    if (comes) moved.result = bring(chunk, address, properties);
    if (moved.result != CUDA_SUCCESS) {
      resident(lane, -signed_bytes(chunk));
      moved.stop = moved.result == CUDA_ERROR_OUT_OF_MEMORY ? Stop::kNoDeviceRoom : Stop::kDriver;
      return;
    }
    moved.result =
        driver().cuMemcpyHtoDAsync_v2(address, chunk.host.at, chunk.bytes, lines.stream());
    if (moved.result != CUDA_SUCCESS) moved.stop = Stop::kDriver;
  };
  each_chunk(lane, bring_one);
  return moved;
}

}  // namespace

Moved move_out(unsigned lane, std::uint64_t bytes, Resident resident) {
  Outward outward(lane, resident);
  for (std::size_t i = count(); i-- > 0;) {
    Range& range = at(i);
    if (range.lane != lane) continue;
    CUdeviceptr address = range.address + range.bytes;
    for (unsigned c = range.count; c-- > 0;) {
      address -= range.chunks[c].bytes;
      if (outward.failed() || outward.begun() >= bytes) return outward.finish();
      if (on_device(range.chunks[c])) outward.put(range.chunks[c], address);
    }
  }
  return outward.finish();
}

Moved move_in(unsigned lane, Resident resident) {
  Lines lines;
  Moved moved = bring_all(lane, lines, resident);
  const CUresult arrived = lines.stream() != nullptr ? lines.wait_for_all() : CUDA_SUCCESS;
  if (moved.stop == Stop::kNothing && arrived != CUDA_SUCCESS) {
    moved.stop = Stop::kDriver;
    moved.result = arrived;
  }
  const bool copied = moved.stop != Stop::kDriver;  // short of room, what was copied is right
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp&) {
    if (!in_flight(chunk)) return;
    if (copied && arrived == CUDA_SUCCESS) {
      moved.copied += chunk.bytes;
      host_pool::give_back(chunk.host);
    } else {
      if (send_away(chunk, address)) resident(lane, -signed_bytes(chunk));
    }
  });
  return moved;
}

}  // namespace switchyard::shim::swap
