#include "shim/swap/calls/handles.h"

#include "shim/client/process.h"
#include "shim/log.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/mover.h"
#include "shim/swap/transfer/consolidate.h"
#include "shim/swap/work_guard.h"

namespace switchyard::shim::swap::handles {
namespace {

using bodies::Span;

// More than any GPU has: the driver shall refuse it.
constexpr std::uint64_t kMost = 1ull << 46;

// As the driver refuses what isn't the whole.
CUresult refusal(const Body& body, CUdeviceptr address, std::uint64_t size, std::uint64_t offset,
                 unsigned long long flags) {
  const bool sound = flags == 0 && size != 0 && offset <= body.bytes &&
                     size <= body.bytes - offset && (address | size | offset) % kSmallestChunk == 0;
  if (!sound) return CUDA_ERROR_INVALID_VALUE;
  return size == body.bytes ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

bool all_there(const Span& span) {
  for (std::size_t i = span.first; i < span.last; ++i) {
    if (!bodies::is_there(*bodies::place_at(i).body)) return false;
  }
  return true;
}

// Whether something is away that can still be reached after its unmapping.
bool loses(const Span& span) {
  for (std::size_t i = span.first; i < span.last; ++i) {
    const Body& body = *bodies::place_at(i).body;
    if (body.references != 0 && !bodies::is_there(body)) return true;
  }
  return false;
}

// What lies between the places is the driver's own, and its answer.
CUresult unmap_between(const Span& span, CUdeviceptr address, CUdeviceptr end) {
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = span.first; i <= span.last && result == CUDA_SUCCESS; ++i) {
    const CUdeviceptr next = i < span.last ? bodies::place_at(i).address : end;
    if (next > address) result = driver().cuMemUnmap(address, next - address);
    if (i < span.last) address = next + bodies::place_at(i).body->bytes;
  }
  return result;
}

CUresult unmap_span(const Span& span, CUdeviceptr address, std::uint64_t size) {
  const bool whole = all_there(span);
  // The driver knows nothing at some of these addresses, so it isn't asked about all in one.
  CUresult result =
      whole ? driver().cuMemUnmap(address, size) : unmap_between(span, address, address + size);
  for (std::size_t i = span.last; i-- > span.first && result == CUDA_SUCCESS;) {
    const Place& place = bodies::place_at(i);
    if (!whole) result = bodies::unmap_chunks(*place.body, place.address, place.body->count);
    if (result == CUDA_SUCCESS) bodies::end_place(i);
  }
  return result;
}

// False: not without waiting. pre: a Held lives.
bool try_unmap(const Span& span, CUdeviceptr address, std::uint64_t size, bool admitted,
               CUresult& result) {
  if (!span.whole) {
    result = CUDA_ERROR_INVALID_VALUE;
    return true;
  }
  if (!admitted && loses(span)) return false;
  result = unmap_span(span, address, size);
  return true;
}

void note_access(Place& place, const CUmemAccessDesc& access) {
  const CUmemLocation& at = access.location;
  const bool device = at.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool counted = device && at.id >= 0 && at.id < static_cast<int>(kOtherLocations);
  const std::uint64_t bit = 1ull << (counted ? static_cast<unsigned>(at.id) : kOtherLocations);
  if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) place.body->reached = true;
  place.readers &= ~bit;
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) place.readers |= bit;
  if (device && at.id == place.body->asked.location.id) {
    place.own_access = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return;
  }
  if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) place.others |= bit;
  // Who shares the last bit isn't told apart.
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE && counted) place.others &= ~bit;
}

// One more reference of what is mapped next in [address, end); `address` goes behind it. False:
// nothing is.
bool retain_next(CUdeviceptr& address, CUdeviceptr end, Handle& number) {
  const Held held;
  const Span span = bodies::span_of(address, end - address);
  if (span.empty()) return false;
  const Place& place = bodies::place_at(span.first);
  ++place.body->references;
  number = place.body->number;
  address = place.address + place.body->bytes;
  return true;
}

// Without the mover. False: it is needed.
bool try_make_whole(Handle handle, CUresult& result) {
  const WorkGuard entry;
  const Held held;
  Body* body = bodies::find(handle);
  // Nobody can be at work in what nobody reaches.
  if (body != nullptr && !whole::is_whole(*body) && body->reached) return false;
  result = body != nullptr ? whole::make(*body) : CUDA_ERROR_INVALID_VALUE;
  return true;
}

const char* hindrance(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "the host or the GPU has no room; try again, or start switchyardd with a larger "
             "--host-pool";
    case CUDA_ERROR_NOT_READY:
      return "the process's work did not end in time; export it while the GPU is idle";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "a stream is being captured; export it before";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "no context is left to copy it by";
    default:
      return "the driver refused";
  }
}

void stay(Body& body, Stays why) {
  body.stays = why;
  bodies::settle(body);
}

}  // namespace

bool takes(const Handle* handle, std::uint64_t bytes, const CUmemAllocationProp* properties,
           unsigned long long flags) {
  return on() && handle != nullptr && properties != nullptr && flags == 0 && bytes != 0 &&
         bytes <= kMost && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         lane_of_device(properties->location.id) != nullptr &&
         (properties->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) == 0;
}

CUresult create(Handle* handle, std::uint64_t bytes, const CUmemAllocationProp& properties) {
  mover::start();
  Body* body = bodies::make(bytes, properties);
  if (body == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = bodies::fill(*body);
  if (result == CUDA_SUCCESS) {
    const Held held;
    if (bodies::add(*body)) {
      *handle = body->number;
      return CUDA_SUCCESS;
    }
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  bodies::destroy(body);
  return result;
}

CUresult release(Handle handle) {
  const Held held;
  Body* body = bodies::find(handle);
  if (body == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --body->references;
  return bodies::end_if_unused(*body);
}

CUresult map(CUdeviceptr address, std::uint64_t size, std::uint64_t offset, Handle handle,
             unsigned long long flags) {
  const Held held;
  Body* body = bodies::find(handle);
  if (body == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = refusal(*body, address, size, offset, flags);
  // Only where no context was left to bring it back by is it away here.
  if (result == CUDA_SUCCESS && body->range != 0 && !bodies::is_there(*body)) {
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  if (result == CUDA_SUCCESS) result = bodies::fill(*body);
  if (result == CUDA_SUCCESS) result = bodies::map_chunks(*body, address);
  if (result != CUDA_SUCCESS || bodies::add_place(*body, address)) return result;
  bodies::unmap_chunks(*body, address, body->count);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool unmap(CUdeviceptr address, std::uint64_t size, CUresult& result) {
  {
    const Held held;
    const Span span = bodies::span_of(address, size);
    if (span.empty()) return false;
    if (try_unmap(span, address, size, false, result)) return true;
  }
  const WorkGuard entry;
  const Held held;
  const Span span = bodies::span_of(address, size);
  return !span.empty() && try_unmap(span, address, size, true, result);
}

bool set_access(CUdeviceptr address, std::uint64_t size, const CUmemAccessDesc* access,
                std::size_t count, CUresult& result) {
  const Held held;
  const Span span = bodies::span_of(address, size);
  if (span.empty()) return false;
  result =
      span.whole ? driver().cuMemSetAccess(address, size, access, count) : CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = span.first; i < span.last && result == CUDA_SUCCESS; ++i) {
    Place& place = bodies::place_at(i);
    for (std::size_t a = 0; a < count; ++a) note_access(place, access[a]);
    bodies::settle(*place.body);
  }
  return true;
}

bool retain(CUdeviceptr address, Handle& handle) {
  const Held held;
  const Place* place = bodies::place_of(address);
  if (place == nullptr) return false;
  ++place->body->references;
  handle = place->body->number;
  return true;
}

bool mapping_of(CUdeviceptr address, CUdeviceptr* base, std::size_t* bytes) {
  const Held held;
  const Place* place = bodies::place_of(address);
  if (place == nullptr) return false;
  if (base != nullptr) *base = place->address;
  if (bytes != nullptr) *bytes = place->body->bytes;
  return true;
}

bool types_at(CUdeviceptr address, unsigned& types) {
  const Held held;
  const Place* place = bodies::place_of(address);
  if (place != nullptr) types = static_cast<unsigned>(place->body->got.requestedHandleTypes);
  return place != nullptr;
}

bool any_in(CUdeviceptr address, std::uint64_t size) {
  const Held held;
  return !bodies::span_of(address, size).empty();
}

CUresult properties_of(Handle handle, CUmemAllocationProp* properties) {
  const Held held;
  const Body* body = bodies::find(handle);
  if (body == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = body->got;
  return CUDA_SUCCESS;
}

CUresult real(Handle handle, Handle& driver_handle) {
  const Held held;
  const Body* body = bodies::find(handle);
  if (body == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver_handle = body->chunks[0].handle;
  return CUDA_SUCCESS;
}

CUresult make_whole(Handle handle) {
  CUresult result = CUDA_SUCCESS;
  if (try_make_whole(handle, result)) return result;
  result = wanted::ask(handle);
  if (result == CUDA_SUCCESS) return result;
  static Once said;
  log_once(said, Level::kWarn,
           "memory that is to be exported or bound could not be made one piece of our own: "
           "%s (driver %d)",
           hindrance(result), static_cast<int>(result));
  return result;
}

CUresult make_whole(CUdeviceptr address, std::uint64_t size) {
  CUresult result = CUDA_SUCCESS;
  for (const CUdeviceptr end = address + size; address < end && result == CUDA_SUCCESS;) {
    Handle number = 0;
    if (!retain_next(address, end, number)) break;
    result = make_whole(number);
    release(number);
  }
  return result;
}

bool is_whole(Handle handle) {
  const Held held;
  const Body* body = bodies::find(handle);
  return body == nullptr || whole::is_whole(*body);
}

bool is_whole(CUdeviceptr address, std::uint64_t size) {
  const Held held;
  const Span span = bodies::span_of(address, size);
  bool all = true;
  for (std::size_t i = span.first; i < span.last; ++i) {
    all = all && whole::is_whole(*bodies::place_at(i).body);
  }
  return all;
}

void stays(Handle handle, Stays why) {
  const Held held;
  if (Body* body = bodies::find(handle)) stay(*body, why);
}

void stays(CUdeviceptr address, std::uint64_t size, Stays why) {
  const Held held;
  const Span span = bodies::span_of(address, size);
  for (std::size_t i = span.first; i < span.last; ++i) stay(*bodies::place_at(i).body, why);
}

}  // namespace switchyard::shim::swap::handles
