#include "shim/swap/pipeline.h"

#include <algorithm>

#include "shim/swap/digest.h"
#include "shim/swap/host_pool.h"

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
  host_pool::Piece to = {};  // the chunk's own once it has arrived
  Digest digest = {};
  Digest first = {};  // of its first piece
};

// A piece for a chunk that must be copied. What is kept of others gives way.
host_pool::Piece find_piece(std::uint64_t bytes) {
  host_pool::Piece piece = host_pool::take(bytes);
  while (!piece && give_up_kept()) piece = host_pool::take(bytes);
  return piece;
}

class Outward {
 public:
  Outward(unsigned lane, Digests& digests, Resident resident)
      : lane_(lane), digests_(digests), resident_(resident) {
    fail(lines_.result());
  }

  void put(Chunk& chunk, CUdeviceptr address) {
    if (failed()) return;
    Digest now;
    const bool known = digests_.answer(chunk.bytes, now);
    if (is_in_host(chunk, known && Digests::trusted(), now)) {
      if (leave(chunk, address)) moved_.spared += chunk.bytes;
    } else {
      copy(chunk, address, now);
    }
  }

  Moved finish() {
    while (oldest_ != next_) land();
    return moved_;
  }

 private:
  bool failed() const { return moved_.stop != Stop::kNothing; }
  void fail(CUresult result) {
    if (result == CUDA_SUCCESS || failed()) return;
    moved_.stop = Stop::kDriver;
    moved_.result = result;
  }

  // Whether nothing has to be copied: it is all zero, or has not changed since it came. What has
  // not arrived has not changed either.
  static bool is_in_host(Chunk& chunk, bool known, const Digest& now) {
    if (chunk.arriving) return true;
    chunk.zero = known && now == Digest{};
    if (chunk.zero) host_pool::give_back(chunk.host);
    return chunk.zero || (known && chunk.host && chunk.digest == now);
  }

  // `now`: zeros when it isn't known.
  void copy(Chunk& chunk, CUdeviceptr address, const Digest& now) {
    if (next_ - oldest_ == kDepth) land();
    if (failed()) return;
    Flight flight{.chunk = &chunk,
                  .address = address,
                  .to = chunk.host,
                  .digest = now,
                  .first = digests_.first()};
    chunk.host = {};
    if (!flight.to) flight.to = find_piece(chunk.bytes);
    if (!flight.to) {
      moved_.stop = Stop::kNoHostRoom;
      return;
    }
    CUresult result =
        driver().cuMemcpyDtoHAsync_v2(flight.to.at, address, chunk.bytes, lines_.stream());
    if (result == CUDA_SUCCESS) result = lines_.mark(next_);
    flights_[next_++ % kDepth] = flight;
    fail(result);
    // What follows may be left out as soon as the GPU has been seen to compute right.
    if (!Digests::trusted() && flight.first != Digest{}) land();
  }

  // The oldest copy has arrived, or failed: then its chunk stays.
  void land() {
    Flight flight = flights_[oldest_ % kDepth];
    if (!failed()) fail(lines_.wait(oldest_));
    ++oldest_;
    if (failed()) {
      lines_.wait_for_all();  // nothing may write into a piece that is given back
      host_pool::give_back(flight.to);
      return;
    }
    Digests::check(flight.first, flight.to.at);
    flight.chunk->host = flight.to;
    flight.chunk->digest = flight.digest;
    if (leave(*flight.chunk, flight.address)) {
      moved_.copied += flight.chunk->bytes;
    } else {
      host_pool::give_back(flight.chunk->host);
    }
  }

  bool leave(Chunk& chunk, CUdeviceptr address) {
    if (!send_away(chunk, address)) {
      chunk.zero = chunk.zero && chunk.arriving;
      fail(CUDA_ERROR_UNKNOWN);
      return false;
    }
    chunk.arriving = false;
    resident_(lane_, -signed_bytes(chunk));
    return true;
  }

  unsigned lane_;
  Digests& digests_;
  Resident resident_;
  Lines lines_;
  Flight flights_[kDepth] = {};
  unsigned oldest_ = 0;
  unsigned next_ = 0;
  Moved moved_;
};

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

CUresult fill(const Chunk& chunk, CUdeviceptr address, CUstream stream) {
  return chunk.zero ? driver().cuMemsetD32Async(address, 0, chunk.bytes / 4, stream)
                    : driver().cuMemcpyHtoDAsync_v2(address, chunk.host.at, chunk.bytes, stream);
}

// Its contents are on the device. Without a digest nobody could tell whether a copy is still right.
void settle(Chunk& chunk) {
  chunk.arriving = chunk.zero = false;
  if (chunk.digest == Digest{}) host_pool::give_back(chunk.host);
}

Stop stop_of(CUresult failure) {
  return failure == CUDA_ERROR_OUT_OF_MEMORY ? Stop::kNoDeviceRoom : Stop::kDriver;
}

class Inward {
 public:
  Inward(unsigned lane, Lines& lines, MayCome may_come, Resident resident)
      : lane_(lane), lines_(lines), may_come_(may_come), resident_(resident) {
    if (lines.result() != CUDA_SUCCESS) stop(lines.result());
  }

  void put(Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
    if (moved_.stop == Stop::kDriver || lines_.stream() == nullptr) return;
    // One that could not be taken away again after a copy that failed is there already, without its
    // contents: these come also where there is no room for more.
    const bool comes = !on_device(chunk);
    if (!comes && !chunk.arriving) return;
    if (comes && !bring_one(chunk, address, properties)) return;
    if (count_ != 0 && address != end()) fill_all();
    location_ = properties.location;
    run_[count_++] = {&chunk, address, comes};
    if (count_ == longest_) {
      fill_all();
      longest_ = std::min(2 * longest_, kLongestRun);
    }
  }

  Moved finish() {
    fill_all();
    return moved_;
  }

 private:
  static constexpr unsigned kLongestRun = 8;

  // A chunk on the device that nobody may touch yet, nor has it its contents.
  struct Brought {
    Chunk* chunk = nullptr;
    CUdeviceptr address = 0;
    bool came = false;
  };

  CUdeviceptr end() const { return run_[count_ - 1].address + run_[count_ - 1].chunk->bytes; }

  void stop(CUresult failure) {
    moved_.result = failure;
    moved_.stop = stop_of(failure);
  }

  // Who waits for room has given all to the copies before.
  bool may_come(std::uint64_t bytes) {
    if (count_ != 0 && may_come_(lane_, bytes, false)) return true;
    fill_all();
    return moved_.stop == Stop::kNothing && may_come_(lane_, bytes, true);
  }

  bool bring_one(Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
    // Nor a smaller one behind it: the same ones move every time.
    full_ = full_ || moved_.stop != Stop::kNothing || !may_come(chunk.bytes);
    if (full_) return false;
    resident_(lane_, signed_bytes(chunk));
    const CUresult brought = bring(chunk, address, properties);
    if (brought == CUDA_SUCCESS) return true;
    resident_(lane_, -signed_bytes(chunk));
    stop(brought);
    return false;
  }

  void fill_all() {
    if (count_ == 0) return;
    const CUresult permitted = permit(run_[0].address, end() - run_[0].address, location_);
    for (unsigned i = 0; i < count_; ++i) {
      Chunk& chunk = *run_[i].chunk;
      chunk.arriving = true;
      if (permitted == CUDA_SUCCESS) {
        const CUresult filled = moved_.stop == Stop::kDriver
                                    ? CUDA_SUCCESS
                                    : fill(chunk, run_[i].address, lines_.stream());
        if (filled != CUDA_SUCCESS) moved_ = {.stop = Stop::kDriver, .result = filled};
      } else if (run_[i].came && send_away(chunk, run_[i].address)) {
        chunk.arriving = false;
        resident_(lane_, -signed_bytes(chunk));
      }
    }
    if (permitted != CUDA_SUCCESS) stop(permitted);
    count_ = 0;
  }

  unsigned lane_;
  Lines& lines_;
  MayCome may_come_;
  Resident resident_;
  Moved moved_;
  bool full_ = false;
  Brought run_[kLongestRun];  // they follow each other
  unsigned count_ = 0;
  unsigned longest_ = 1;  // the first shall be copied soon
  CUmemLocation location_ = {};
};

// The chunks on the device, the last ranges first, until `bytes` are told of.
template <typename Do>
void each_leaving(unsigned lane, std::uint64_t bytes, Do act) {
  std::uint64_t told = 0;
  for (std::size_t i = count(); i-- > 0;) {
    Range& range = at(i);
    if (range.lane != lane || range.stays) continue;
    CUdeviceptr address = range.address + range.bytes;
    for (unsigned c = range.count; c-- > 0;) {
      Chunk& chunk = range.chunks[c];
      address -= chunk.bytes;
      if (told >= bytes) return;
      if (!on_device(chunk)) continue;
      told += chunk.bytes;
      act(chunk, address);
    }
  }
}

}  // namespace

Moved move_out(unsigned lane, std::uint64_t bytes, Resident resident) {
  std::uint64_t leaving = 0;
  each_leaving(lane, bytes, [&](Chunk& chunk, CUdeviceptr) { leaving += chunk.bytes; });
  Digests digests(leaving);
  each_leaving(lane, bytes,
               [&](Chunk& chunk, CUdeviceptr address) { digests.ask(address, chunk.bytes); });
  digests.launch();
  Outward outward(lane, digests, resident);
  each_leaving(lane, bytes,
               [&](Chunk& chunk, CUdeviceptr address) { outward.put(chunk, address); });
  return outward.finish();
}

Moved move_out(Chunk* chunks, unsigned count, CUdeviceptr address) {
  const auto each = [&](auto act) {
    CUdeviceptr at = address;
    for (unsigned i = 0; i < count; ++i) {
      act(chunks[i], at);
      at += chunks[i].bytes;
    }
  };
  std::uint64_t bytes = 0;
  each([&](Chunk& chunk, CUdeviceptr) { bytes += chunk.bytes; });
  Digests digests(bytes);
  each([&](Chunk& chunk, CUdeviceptr at) { digests.ask(at, chunk.bytes); });
  digests.launch();
  Outward outward(0, digests, [](unsigned, std::int64_t) {});
  each([&](Chunk& chunk, CUdeviceptr at) { outward.put(chunk, at); });
  return outward.finish();
}

CUresult pour(const Chunk* chunks, unsigned count, CUdeviceptr address) {
  Lines lines;
  CUresult result = lines.result();
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = fill(chunks[i], address, lines.stream());
    address += chunks[i].bytes;
  }
  // Nothing may be in flight when it is taken away again.
  const CUresult arrived = lines.stream() != nullptr ? lines.wait_for_all() : CUDA_SUCCESS;
  return result != CUDA_SUCCESS ? result : arrived;
}

Moved move_in(unsigned lane, MayCome may_come, Resident resident) {
  Lines lines;
  Inward inward(lane, lines, may_come, resident);
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
    inward.put(chunk, address, properties);
  });
  Moved moved = inward.finish();
  const CUresult arrived = lines.stream() != nullptr ? lines.wait_for_all() : CUDA_SUCCESS;
  if (moved.stop == Stop::kNothing && arrived != CUDA_SUCCESS) {
    moved.stop = Stop::kDriver;
    moved.result = arrived;
  }
  const bool copied = moved.stop != Stop::kDriver;  // short of room, what was copied is right
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp&) {
    if (!chunk.arriving) return;
    if (copied && arrived == CUDA_SUCCESS) {
      (chunk.zero ? moved.spared : moved.copied) += chunk.bytes;
      settle(chunk);
    } else if (send_away(chunk, address)) {
      chunk.arriving = false;
      resident(lane, -signed_bytes(chunk));
    }
  });
  return moved;
}

}  // namespace switchyard::shim::swap
