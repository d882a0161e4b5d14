// Memory that a job makes itself, as expandable segments do. It reserves addresses first, then maps
// pieces of memory side by side, and permits access to all of them at once. Memory for export is
// made for that; an importer in the same process maps it a second time.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

class OwnMemory {
 public:
  // 'x': it can be exported. 'e': it is, before it is mapped anywhere.
  enum class Kind : char { kOwn = 0, kExportable = 'x', kExported = 'e' };

  // The addresses are twice what is mapped.
  CUresult make(std::size_t bytes, std::size_t piece, Kind kind) {
    if (kind != Kind::kOwn) {
      properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
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
    if (result == CUDA_SUCCESS && kind == Kind::kExported) result = share();
    return result == CUDA_SUCCESS ? map() : result;
  }

  // Takes the memory from its addresses, and puts it back.
  CUresult remap() {
    const CUresult result = cuMemUnmap(address_, mapped());
    return result == CUDA_SUCCESS ? map() : result;
  }

  // Exports all pieces, and maps them as their importer does.
  CUresult share() {
    std::vector<Piece> shared;
    CUresult result = CUDA_SUCCESS;
    for (const Piece& piece : pieces_) {
      int fd = -1;
      result = cuMemExportToShareableHandle(&fd, piece.handle,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
      if (result != CUDA_SUCCESS) return result;
      shared.push_back({0, piece.bytes});
      result = cuMemImportFromShareableHandle(&shared.back().handle,
                                              reinterpret_cast<void*>(std::intptr_t{fd}),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      ::close(fd);
      if (result != CUDA_SUCCESS) return result;
    }
    if (shared_ != 0) return CUDA_SUCCESS;
    result = cuMemAddressReserve(&shared_, mapped(), 0, 0, 0);
    return result == CUDA_SUCCESS ? map(shared, shared_) : result;
  }
  CUdeviceptr shared() const { return shared_; }  // 0: there is no importer

  // The same while it is mapped nowhere.
  CUresult share_unmapped() {
    CUresult result = cuMemUnmap(address_, mapped());
    if (result != CUDA_SUCCESS) return result;
    const CUresult lent = share();
    result = map();
    return lent != CUDA_SUCCESS ? lent : result;
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

  CUresult map() { return map(pieces_, address_); }
  CUresult map(const std::vector<Piece>& pieces, CUdeviceptr address) {
    CUdeviceptr at = address;
    for (const Piece& piece : pieces) {
      if (const CUresult bad = cuMemMap(at, piece.bytes, 0, piece.handle, 0)) return bad;
      at += piece.bytes;
    }
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(address, mapped(), &access, 1);
  }

  CUmemAllocationProp properties_{};
  CUdeviceptr address_ = 0;
  CUdeviceptr shared_ = 0;
  std::size_t reserved_ = 0;
  std::vector<Piece> pieces_;
};
