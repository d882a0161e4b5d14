#include "shim/swap/transfer/consolidate.h"

#include <stdlib.h>

#include "shim/log.h"
#include "shim/no_copy.h"
#include "shim/swap/memory/retry_on_oom.h"

namespace switchyard::shim::swap::consolidation {
namespace {

Chunk* one_chunk(std::uint64_t bytes) {
  auto* chunk = static_cast<Chunk*>(::calloc(1, sizeof(Chunk)));
  if (chunk != nullptr) chunk->bytes = bytes;
  return chunk;
}

// What stands behind an allocation, put aside.
struct Backing {
  Chunk* chunks = nullptr;
  unsigned count = 0;

  void exchange(VmmAllocation& allocation) {
    const Backing mine = *this;
    *this = {allocation.chunks, allocation.count};
    allocation.chunks = mine.chunks;
    allocation.count = mine.count;
  }
  void end() {
    for (unsigned i = 0; i < count; ++i) pinned_pool::give_back(chunks[i].host);
    ::free(chunks);
  }
};

CUresult result_of(const Moved& moved) {
  if (moved.stop == Stop::kNoHostRoom) return CUDA_ERROR_OUT_OF_MEMORY;
  return moved.stop == Stop::kNothing ? CUDA_SUCCESS : moved.result;
}

CUresult map_everywhere(const VmmAllocation& allocation) {
  CUresult first = CUDA_SUCCESS;
  vmm_allocations::each_place(allocation, [&](const Mapping& place) {
    const CUresult result = vmm_allocations::map_chunks(allocation, place.address);
    if (first == CUDA_SUCCESS) first = result;
  });
  return first;
}

CUresult unmap_everywhere(const VmmAllocation& allocation) {
  CUresult first = CUDA_SUCCESS;
  vmm_allocations::each_place(allocation, [&](const Mapping& place) {
    const CUresult result =
        vmm_allocations::unmap_chunks(allocation, place.address, allocation.count);
    if (first == CUDA_SUCCESS) first = result;
  });
  return first;
}

void release_all(VmmAllocation& allocation) {
  for (unsigned i = 0; i < allocation.count; ++i) {
    Chunk& chunk = allocation.chunks[i];
    if (chunk.handle != 0) release(chunk);
  }
}

// Without contents, and without access at its places.
CUresult make_empty(VmmAllocation& allocation) {
  Backing aside{one_chunk(allocation.bytes), 1};
  if (aside.chunks == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = unmap_everywhere(allocation);
  release_all(allocation);
  aside.exchange(allocation);
  allocation.rdma = Rdma::kAsAsked;
  if (result == CUDA_SUCCESS) result = vmm_allocations::fill(allocation);
  if (result == CUDA_SUCCESS) result = map_everywhere(allocation);
  if (result != CUDA_SUCCESS) {
    unmap_everywhere(allocation);
    release_all(allocation);
    aside.exchange(allocation);
    allocation.rdma = Rdma::kCleared;
    // Chunks that it lacks are made before it is mapped.
    if (vmm_allocations::fill(allocation) == CUDA_SUCCESS) map_everywhere(allocation);
  }
  aside.end();
  return result;
}

// pre: it is a range, but for what is about to happen to it.
CUresult remake(VmmAllocation& allocation, CUdeviceptr address) {
  Backing one{one_chunk(allocation.bytes), 1};
  if (one.chunks == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result =
      result_of(move_out(allocation.lane, allocation.chunks, allocation.count, address));
  const auto bring_one = [&] { return bring(*one.chunks, address, allocation.asked); };
  if (result == CUDA_SUCCESS) result = bring_one();
  // Some of it may just have been offered to another job.
  if (result == CUDA_ERROR_OUT_OF_MEMORY) result = retry_on_oom(bring_one);
  if (result == CUDA_SUCCESS) {
    result = permit(address, allocation.bytes, {.location = allocation.asked.location});
    if (result == CUDA_SUCCESS) result = pour(allocation.chunks, allocation.count, address);
    if (result != CUDA_SUCCESS) send_away(*one.chunks, address);
  }
  if (result == CUDA_SUCCESS) one.exchange(allocation);
  one.end();
  return result;
}

// An allocation that can leave.
CUresult make_full(VmmAllocation& allocation, Resident resident) {
  const CUdeviceptr address = allocation.range;
  // While it is remade nobody counts it as swappable. The thread that wanted it whole has the true
  // reason.
  allocation.stays = Stays::kIpcExported;
  vmm_allocations::settle(allocation);
  const CUresult result = remake(allocation, address);
  if (result == CUDA_SUCCESS) return result;
  allocation.stays = Stays::kLeaves;
  vmm_allocations::settle(allocation);
  // The mover tries again to bring chunks that don't come now, as after any move.
  const auto always = [](unsigned, std::uint64_t, bool) { return true; };
  if (!vmm_allocations::is_there(allocation)) move_in(allocation.lane, always, resident);
  return result;
}

// Whether all that has access at its places can be told the driver anew.
bool knows_access(const VmmAllocation& allocation) {
  bool known = true;
  vmm_allocations::each_place(allocation, [&](const Mapping& place) {
    if ((place.others >> kOtherLocations) != 0) known = false;
  });
  return known;
}

CUresult give_access(const Mapping& place) {
  CUmemAccessDesc access[kOtherLocations];
  std::size_t count = 0;
  const CUmemLocation& own = place.allocation->asked.location;
  for (int id = 0; id < static_cast<int>(kOtherLocations); ++id) {
    const bool reads = (place.readers >> id & 1) != 0;
    const bool writes = id == own.id ? place.own_access : (place.others >> id & 1) != 0;
    if (!reads && !writes) continue;
    access[count++] = {{own.type, id},
                       reads ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  return count != 0 ? driver().cuMemSetAccess(place.address, place.allocation->bytes, access, count)
                    : CUDA_SUCCESS;
}

// A place of ours that is an allocation's only one for as long as this lives: it can leave there.
// Its other places get their mappings and access again in the end. pre: it is there, and
// knows_access().
class StandIn : NoCopy {
 public:
  explicit StandIn(VmmAllocation& allocation) : body_(allocation) {
    result_ = driver().cuMemAddressReserve(&address_, bytes_, 0, 0, 0);
    if (result_ != CUDA_SUCCESS) return;
    result_ = map();
    if (!mapped_) return;
    each_other([&](const Mapping& place) {
      const CUresult unmapped = vmm_allocations::unmap_chunks(body_, place.address, body_.count);
      if (result_ == CUDA_SUCCESS) result_ = unmapped;
    });
    body_.places = 1;
    body_.sum = address_;
    vmm_allocations::mapping_of(address_)->own_access = true;
    vmm_allocations::settle(body_);
  }
  ~StandIn() {
    if (mapped_) {
      body_.places = places_ + 1;
      body_.sum = sum_ + address_;
    }
    if (mapped_ && !vmm_allocations::is_there(body_)) {
      // Memory that is away comes back here alone, so it is kept for good.
      log_line(Level::kError, "memory that could not be made one piece stays mapped at %llx",
               static_cast<unsigned long long>(address_));
      return;
    }
    if (mapped_) put_back();
    if (address_ != 0) driver().cuMemAddressFree(address_, bytes_);
  }

  CUresult result() const { return result_; }

 private:
  static constexpr int kTries = 3;

  template <typename Act>
  void each_other(Act act) {
    vmm_allocations::each_place(body_, [&](const Mapping& place) {
      if (place.address != address_) act(place);
    });
  }

  CUresult map() {
    CUresult result = vmm_allocations::map_chunks(body_, address_);
    if (result != CUDA_SUCCESS) return result;
    const CUmemAccessDesc access{body_.asked.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver().cuMemSetAccess(address_, bytes_, &access, 1);
    const std::uint32_t places = body_.places;
    const CUdeviceptr sum = body_.sum;
    mapped_ = result == CUDA_SUCCESS && vmm_allocations::add_mapping(body_, address_);
    if (!mapped_) {
      vmm_allocations::unmap_chunks(body_, address_, body_.count);
      return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    places_ = places;
    sum_ = sum;
    return CUDA_SUCCESS;
  }

  CUresult map_again(const Mapping& place) {
    vmm_allocations::unmap_chunks(body_, place.address,
                                  body_.count);  // what could not be unmapped before
    const CUresult result = vmm_allocations::map_chunks(body_, place.address);
    return result == CUDA_SUCCESS ? give_access(place) : result;
  }

  void put_back() {
    each_other([&](const Mapping& place) {
      CUresult result = CUDA_ERROR_UNKNOWN;
      for (int i = 0; i < kTries && result != CUDA_SUCCESS; ++i) result = map_again(place);
      if (result == CUDA_SUCCESS) return;
      log_line(Level::kError, "memory could not be mapped again at %llx: driver %d",
               static_cast<unsigned long long>(place.address), static_cast<int>(result));
    });
    vmm_allocations::unmap_chunks(body_, address_, body_.count);
    vmm_allocations::end_mapping(vmm_allocations::span_of(address_, bytes_).first);
  }

  VmmAllocation& body_;
  std::uint64_t bytes_ = body_.bytes;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
  std::uint32_t places_ = 0;  // without this one
  CUdeviceptr sum_ = 0;
  CUresult result_ = CUDA_SUCCESS;
};

CUresult make_reached(VmmAllocation& allocation, Resident resident) {
  if (allocation.range != 0) return make_full(allocation, resident);
  if (!knows_access(allocation)) return CUDA_ERROR_NOT_SUPPORTED;
  const StandIn place(allocation);
  if (place.result() != CUDA_SUCCESS) return place.result();
  return allocation.range != 0 ? make_full(allocation, resident) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

bool is_whole(const VmmAllocation& allocation) {
  return allocation.count == 1 && allocation.chunks[0].descriptor == 0 &&
         allocation.rdma != Rdma::kWanted;
}

CUresult make(VmmAllocation& allocation, Resident resident) {
  if (is_whole(allocation)) return CUDA_SUCCESS;
  if (!vmm_allocations::is_there(allocation)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result =
      allocation.reached ? make_reached(allocation, resident) : make_empty(allocation);
  if (result != CUDA_SUCCESS) {
    allocation.rdma = Rdma::kCleared;
    return result;
  }
  allocation.stays = Stays::kIpcExported;
  allocation.rdma = Rdma::kAsAsked;
  vmm_allocations::learn_kind(allocation);
  return result;
}

}  // namespace switchyard::shim::swap::consolidation
