#include "shim/swap/memory/vmm_allocation.h"

#include <stdlib.h>

#include <algorithm>

#include "shim/log.h"
#include "shim/memory/stays.h"
#include "shim/swap/memory/flat_map.h"
#include "shim/swap/mover.h"

namespace switchyard::shim::swap::bodies {
namespace {

struct Numbered {
  Body* body = nullptr;
  std::uint64_t key() const { return body->number; }
};

constinit Sorted<Numbered> g_bodies;
constinit Sorted<Place> g_places;
constinit Handle g_last = kTag << 48;  // never given twice: a stale number is known for one

// Why it can't leave as things are.
Stays why_it_stays(const Body& body) {
  if (body.stays != Stays::kLeaves) return body.stays;
  if (body.places > 1) return Stays::kMultiplyMapped;
  const Place* place = body.places != 0 ? place_of(body.sum) : nullptr;
  if (place == nullptr) return Stays::kNotMapped;
  if (place->others != 0) return Stays::kPeerMapped;
  return place->own_access ? Stays::kLeaves : Stays::kNotMapped;
}

void tell(Body& body, Stays why) {
  if (why == body.told) return;
  const auto lane = static_cast<int>(body.lane);
  const auto bytes = static_cast<std::int64_t>(body.bytes);
  memory::stays(lane, body.told, -bytes);
  memory::stays(lane, why, bytes);
  body.told = why;
}

void become_range(Body& body) {
  Range range;
  range.address = body.sum;
  range.asked = range.bytes = body.bytes;
  range.lane = body.lane;
  range.use = Use::kMapped;
  range.chunks = body.chunks;
  range.count = body.count;
  range.properties = kind_of(body);  // and no context: it outlives the one that is current
  if (!swap::add(range)) return;
  body.range = range.address;
  mover::allocated(body.lane, body.bytes);
  // Where it could not be made whole, some of it may be away.
  if (!is_there(body)) mover::freed(body.lane, 0, body.bytes - resident_bytes(range));
}

void be_no_range(Body& body) {
  if (body.references != 0 && !is_there(body)) {
    static Once said;
    log_once(said, Level::kWarn,
             "memory was unmapped at %llx while it was away and no context was left to bring it "
             "back: its contents are gone",
             static_cast<unsigned long long>(body.range));
  }
  const Range* range = swap::find(body.range);
  const std::uint64_t resident = resident_bytes(*range);
  swap::take(static_cast<std::size_t>(range - &swap::at(0)));
  body.range = 0;
  for (unsigned i = 0; i < body.count; ++i) {
    Chunk& chunk = body.chunks[i];
    pinned_pool::give_back(chunk.host);
    chunk.digest = {};
    chunk.zero = chunk.arriving = false;
  }
  mover::freed(body.lane, body.bytes, resident);
}

// The place around `address`, or the next one behind it.
std::size_t first_meeting(CUdeviceptr address) {
  const std::size_t behind = g_places.up_to(address);
  if (behind == 0) return 0;
  const Place& before = g_places.at(behind - 1);
  return address - before.address < before.body->bytes ? behind - 1 : behind;
}

}  // namespace

Body* make(std::uint64_t bytes, const CUmemAllocationProp& properties) {
  const std::uint64_t count = (bytes + kChunk - 1) / kChunk;
  auto* body = static_cast<Body*>(::malloc(sizeof(Body)));
  auto* chunks = static_cast<Chunk*>(::calloc(count, sizeof(Chunk)));
  if (body == nullptr || chunks == nullptr) {
    ::free(body);
    ::free(chunks);
    return nullptr;
  }
  for (std::uint64_t i = 0; i < count; ++i) chunks[i].bytes = std::min(kChunk, bytes - i * kChunk);
  *body = Body{.bytes = bytes,
               .lane = static_cast<unsigned>(properties.location.id),
               .asked = properties,
               .got = properties,
               .chunks = chunks,
               .count = static_cast<unsigned>(count)};
  return body;
}

CUresult fill(Body& body) {
  CUresult result = CUDA_SUCCESS;
  const bool as_asked = body.chunks[0].handle == 0;
  const CUmemAllocationProp kind = kind_of(body);
  for (unsigned i = 0; i < body.count && result == CUDA_SUCCESS; ++i) {
    Chunk& chunk = body.chunks[i];
    if (chunk.handle != 0) continue;
    result = driver().cuMemCreate(&chunk.handle, chunk.bytes, i == 0 ? &body.asked : &kind, 0);
    if (result != CUDA_SUCCESS) chunk.handle = 0;
  }
  const auto ask = driver().cuMemGetAllocationPropertiesFromHandle;
  if (result == CUDA_SUCCESS && as_asked && ask != nullptr) ask(&body.got, body.chunks[0].handle);
  return result;
}

CUresult destroy(Body* body) {
  CUresult first = CUDA_SUCCESS;
  for (unsigned i = 0; i < body->count; ++i) {
    Chunk& chunk = body->chunks[i];
    const CUresult result = chunk.handle != 0 ? release(chunk) : CUDA_SUCCESS;
    if (first == CUDA_SUCCESS) first = result;
    pinned_pool::give_back(chunk.host);
  }
  ::free(body->chunks);
  ::free(body);
  return first;
}

bool is_there(const Body& body) {
  for (unsigned i = 0; i < body.count; ++i) {
    if (body.chunks[i].handle == 0 || body.chunks[i].arriving) return false;
  }
  return true;
}

CUmemAllocationProp kind_of(const Body& body) {
  CUmemAllocationProp kind = body.asked;
  // It can be handed over (handover.h), whatever was asked for; nobody else is given a part of it.
  const auto asked = body.count == 1 ? kind.requestedHandleTypes : CU_MEM_HANDLE_TYPE_NONE;
  kind.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(
      asked | plain_memory(kind.location.id).requestedHandleTypes);
  return kind;
}

CUresult map_chunks(const Body& body, CUdeviceptr address) {
  CUdeviceptr at = address;
  for (unsigned i = 0; i < body.count; ++i) {
    const Chunk& chunk = body.chunks[i];
    const CUresult result = driver().cuMemMap(at, chunk.bytes, 0, chunk.handle, 0);
    if (result != CUDA_SUCCESS) {
      unmap_chunks(body, address, i);
      return result;
    }
    at += chunk.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult unmap_chunks(const Body& body, CUdeviceptr address, unsigned count) {
  CUresult first = CUDA_SUCCESS;
  for (unsigned i = 0; i < count; ++i) {
    const Chunk& chunk = body.chunks[i];
    const CUresult result =
        chunk.handle != 0 ? driver().cuMemUnmap(address, chunk.bytes) : CUDA_SUCCESS;
    if (first == CUDA_SUCCESS) first = result;
    address += chunk.bytes;
  }
  return first;
}

bool add(Body& body) {
  body.number = ++g_last;
  if (!g_bodies.add({&body})) return false;
  settle(body);
  return true;
}

Body* find(Handle number) {
  const std::size_t behind = g_bodies.up_to(number);
  if (behind == 0) return nullptr;
  Body* body = g_bodies.at(behind - 1).body;
  return body->number == number && body->references != 0 ? body : nullptr;
}

Place* place_of(CUdeviceptr address) {
  const std::size_t index = first_meeting(address);
  if (index == g_places.count() || g_places.at(index).address > address) return nullptr;
  return &g_places.at(index);
}

Span span_of(CUdeviceptr address, std::uint64_t size) {
  Span span;
  const CUdeviceptr end = address + size;
  span.first = span.last = first_meeting(address);
  while (span.last < g_places.count() && g_places.at(span.last).address < end) {
    const Place& place = g_places.at(span.last++);
    if (place.address < address || place.address + place.body->bytes > end) span.whole = false;
  }
  return span;
}

Place& place_at(std::size_t index) { return g_places.at(index); }

bool add_place(Body& body, CUdeviceptr address) {
  if (!g_places.add({.address = address, .body = &body})) return false;
  ++body.places;
  body.sum += address;
  settle(body);
  return true;
}

void end_place(std::size_t index) {
  const Place gone = g_places.take(index);
  Body& body = *gone.body;
  --body.places;
  body.sum -= gone.address;
  settle(body);
  end_if_unused(body);
}

void settle(Body& body) {
  const Stays why = why_it_stays(body);
  tell(body, why);
  const bool leaves = why == Stays::kLeaves;
  if (leaves == (body.range != 0)) return;
  if (leaves) {
    become_range(body);
  } else {
    be_no_range(body);
  }
}

CUresult end_if_unused(Body& body) {
  if (body.references != 0 || body.places != 0) return CUDA_SUCCESS;
  g_bodies.take(g_bodies.up_to(body.number) - 1);
  tell(body, Stays::kLeaves);
  return destroy(&body);
}

void clear() {
  g_bodies.forget();
  g_places.forget();
}

}  // namespace switchyard::shim::swap::bodies
