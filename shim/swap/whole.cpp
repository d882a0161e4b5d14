#include "shim/swap/whole.h"

#include <stdlib.h>

#include "shim/log.h"
#include "shim/swap/pipeline.h"

namespace switchyard::shim::swap::whole {
namespace {

Chunk* one_chunk(std::uint64_t bytes) {
  auto* chunk = static_cast<Chunk*>(::calloc(1, sizeof(Chunk)));
  if (chunk != nullptr) chunk->bytes = bytes;
  return chunk;
}

// What stands behind a body, put aside.
struct Backing {
  Chunk* chunks = nullptr;
  unsigned count = 0;

  void exchange(Body& body) {
    const Backing mine = *this;
    *this = {body.chunks, body.count};
    body.chunks = mine.chunks;
    body.count = mine.count;
  }
  void end() {
    for (unsigned i = 0; i < count; ++i) host_pool::give_back(chunks[i].host);
    ::free(chunks);
  }
};

CUresult result_of(const Moved& moved) {
  if (moved.stop == Stop::kNoHostRoom) return CUDA_ERROR_OUT_OF_MEMORY;
  return moved.stop == Stop::kNothing ? CUDA_SUCCESS : moved.result;
}

CUresult map_everywhere(const Body& body) {
  CUresult first = CUDA_SUCCESS;
  bodies::each_place(body, [&](const Place& place) {
    const CUresult result = bodies::map_chunks(body, place.address);
    if (first == CUDA_SUCCESS) first = result;
  });
  return first;
}

CUresult unmap_everywhere(const Body& body) {
  CUresult first = CUDA_SUCCESS;
  bodies::each_place(body, [&](const Place& place) {
    const CUresult result = bodies::unmap_chunks(body, place.address, body.count);
    if (first == CUDA_SUCCESS) first = result;
  });
  return first;
}

void release_all(Body& body) {
  for (unsigned i = 0; i < body.count; ++i) {
    Chunk& chunk = body.chunks[i];
    if (chunk.handle != 0) driver().cuMemRelease(chunk.handle);
    chunk.handle = 0;
  }
}

// Without contents, and without access at its places.
CUresult make_empty(Body& body) {
  Backing aside{one_chunk(body.bytes), 1};
  if (aside.chunks == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = unmap_everywhere(body);
  release_all(body);
  aside.exchange(body);
  if (result == CUDA_SUCCESS) result = bodies::fill(body);
  if (result == CUDA_SUCCESS) result = map_everywhere(body);
  if (result != CUDA_SUCCESS) {
    unmap_everywhere(body);
    release_all(body);
    aside.exchange(body);
    // What it lacks it gets when it is mapped.
    if (bodies::fill(body) == CUDA_SUCCESS) map_everywhere(body);
  }
  aside.end();
  return result;
}

// pre: it is a range, but for what is about to happen to it.
CUresult remake(Body& body, CUdeviceptr address) {
  Backing one{one_chunk(body.bytes), 1};
  if (one.chunks == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = result_of(move_out(body.chunks, body.count, address));
  if (result == CUDA_SUCCESS) result = bring(*one.chunks, address, body.asked);
  if (result == CUDA_SUCCESS) {
    result = pour(body.chunks, body.count, address);
    if (result != CUDA_SUCCESS) send_away(*one.chunks, address);
  }
  if (result == CUDA_SUCCESS) one.exchange(body);
  one.end();
  return result;
}

// A body that can leave.
CUresult make_full(Body& body) {
  const CUdeviceptr address = body.range;
  // While it is remade nobody counts it as swappable.
  body.stays = true;
  bodies::settle(body);
  const CUresult result = remake(body, address);
  if (result == CUDA_SUCCESS) return result;
  body.stays = false;
  bodies::settle(body);
  return result;
}

// Mapped by us for as long as one of these lives.
class StandIn {
 public:
  explicit StandIn(Body& body) : body_(body) {
    result_ = driver().cuMemAddressReserve(&address_, body.bytes, 0, 0, 0);
    if (result_ == CUDA_SUCCESS) result_ = map();
  }
  ~StandIn() {
    // Whatever is away can only come back to where it was.
    if (mapped_ && !bodies::is_there(body_)) {
      log_line(Level::kError, "memory that was to be shared stays mapped at %llx",
               static_cast<unsigned long long>(address_));
      return;
    }
    if (mapped_) {
      bodies::unmap_chunks(body_, address_, body_.count);
      const bodies::Span span = bodies::span_of(address_, body_.bytes);
      bodies::end_place(span.first);
    }
    if (address_ != 0) driver().cuMemAddressFree(address_, bytes_);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  CUresult result() const { return result_; }

 private:
  CUresult map() {
    CUresult result = bodies::map_chunks(body_, address_);
    if (result != CUDA_SUCCESS) return result;
    const CUmemAccessDesc access{body_.asked.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver().cuMemSetAccess(address_, body_.bytes, &access, 1);
    mapped_ = result == CUDA_SUCCESS && bodies::add_place(body_, address_);
    if (!mapped_) {
      bodies::unmap_chunks(body_, address_, body_.count);
      return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    bodies::place_of(address_)->own_access = true;
    bodies::settle(body_);
    return CUDA_SUCCESS;
  }

  Body& body_;
  std::uint64_t bytes_ = body_.bytes;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
  CUresult result_ = CUDA_SUCCESS;
};

CUresult make_reached(Body& body) {
  if (body.range != 0) return make_full(body);
  // Its other places would have to be given what access they had, and none may be forgotten.
  if (body.places != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const StandIn place(body);
  if (place.result() != CUDA_SUCCESS) return place.result();
  return body.range != 0 ? make_full(body) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult make(Body& body) {
  if (body.count == 1) return CUDA_SUCCESS;
  if (!bodies::is_there(body)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = body.reached ? make_reached(body) : make_empty(body);
  if (result == CUDA_SUCCESS) {
    body.stays = true;
  } else {
    static Once said;
    log_once(said, Level::kWarn,
             "%llu bytes of memory could not be made one piece for others to be given: driver %d",
             static_cast<unsigned long long>(body.bytes), static_cast<int>(result));
  }
  return result;
}

}  // namespace switchyard::shim::swap::whole
