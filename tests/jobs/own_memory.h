// Memory that a job makes itself, as expandable segments do: addresses first, then pieces of memory
// side by side, and access to all of them at once.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

class OwnMemory {
 public:
  // The addresses are twice what is mapped.
  CUresult make(std::size_t bytes, std::size_t piece) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    reserved_ = 2 * bytes;
    CUresult result = cuMemAddressReserve(&address_, reserved_, 0, 0, 0);
    for (std::size_t made = 0; made < bytes && result == CUDA_SUCCESS;
         made += pieces_.back().bytes) {
      const std::size_t left = bytes - made;
      pieces_.push_back({0, left < piece ? left : piece});
      result = cuMemCreate(&pieces_.back().handle, pieces_.back().bytes, &properties_, 0);
    }
    return result == CUDA_SUCCESS ? map() : result;
  }

  // Takes the memory from its addresses, and puts it back.
  CUresult remap() {
    const CUresult result = cuMemUnmap(address_, mapped());
    return result == CUDA_SUCCESS ? map() : result;
  }

  // From here on the mappings alone keep it.
  CUresult drop() {
    CUresult result = CUDA_SUCCESS;
    for (Piece& piece : pieces_) {
      if (piece.handle != 0 && result == CUDA_SUCCESS) result = cuMemRelease(piece.handle);
      piece.handle = 0;
    }
    return result;
  }

  CUresult end() {
    CUresult result = cuMemUnmap(address_, mapped());
    if (result == CUDA_SUCCESS) result = drop();
    return result == CUDA_SUCCESS ? cuMemAddressFree(address_, reserved_) : result;
  }

  bool exists() const { return !pieces_.empty(); }
  CUdeviceptr address() const { return address_; }
  // The bounds of the last piece.
  CUdeviceptr last() const { return address_ + mapped() - pieces_.back().bytes; }
  std::size_t last_bytes() const { return pieces_.back().bytes; }

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle;
    std::size_t bytes;
  };

  std::size_t mapped() const {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.bytes;
    return bytes;
  }

  CUresult map() {
    CUdeviceptr at = address_;
    for (const Piece& piece : pieces_) {
      if (const CUresult bad = cuMemMap(at, piece.bytes, 0, piece.handle, 0)) return bad;
      at += piece.bytes;
    }
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(address_, mapped(), &access, 1);
  }

  CUmemAllocationProp properties_{};
  CUdeviceptr address_ = 0;
  std::size_t reserved_ = 0;
  std::vector<Piece> pieces_;
};
