#include "tests/shim/swap/transfer/pipeline_world.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "shim/swap/transfer/digest.h"

namespace switchyard::shim::testing {

std::int64_t g_resident = 0;

namespace {

using swap::RangesLock;

Driven* g_driven = nullptr;

void note_resident(unsigned, std::int64_t bytes) { g_resident += bytes; }

CUresult create(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                unsigned long long) {
  const std::lock_guard hold(g_driven->lock);
  *handle = static_cast<CUmemGenericAllocationHandle>(++g_driven->live_handles);
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard hold(g_driven->lock);
  const auto found = g_driven->imported.find(handle);
  if (found != g_driven->imported.end()) {
    ::close(found->second);
    g_driven->imported.erase(found);
    --g_driven->mapped_from_files;
    return CUDA_SUCCESS;
  }
  --g_driven->live_handles;
  return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  const std::lock_guard hold(g_driven->lock);
  const auto found = g_driven->imported.find(handle);
  void* to = reinterpret_cast<void*>(address);
  if (found == g_driven->imported.end()) {
    std::memset(to, 0xEE, bytes);
  } else if (::pread(found->second, to, bytes, 0) != static_cast<ssize_t>(bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
// The contents of the chunk with that handle, as they are now.
CUresult export_memory(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                       unsigned long long) {
  const int fd = ::memfd_create("chunk", MFD_CLOEXEC);
  ssize_t written = -1;
  swap::each_chunk(0, [&](swap::Chunk& chunk, CUdeviceptr address, const swap::Range&) {
    if (chunk.handle == handle)
      written = ::pwrite(fd, reinterpret_cast<const void*>(address), chunk.bytes, 0);
  });
  *static_cast<int*>(out) = fd;
  return written > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult import_memory(CUmemGenericAllocationHandle* out, void* file, CUmemAllocationHandleType) {
  const std::lock_guard hold(g_driven->lock);
  const int fd = ::dup(static_cast<int>(reinterpret_cast<std::intptr_t>(file)));
  *out = 0x1000'0000u + static_cast<unsigned>(fd);
  g_driven->imported[*out] = fd;
  ++g_driven->mapped_from_files;
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr address, size_t bytes) {
  const std::lock_guard hold(g_driven->lock);
  g_driven->unmapped.push_back(bytes);
  if (!g_driven->unmaps) return CUDA_ERROR_INVALID_VALUE;
  std::memset(reinterpret_cast<void*>(address), 0xDD, bytes);
  return CUDA_SUCCESS;
}
CUresult access(CUdeviceptr, size_t bytes, const CUmemAccessDesc*, size_t) {
  const std::lock_guard hold(g_driven->lock);
  g_driven->permitted.push_back(bytes);
  std::size_t in_flight = 0;
  for (const auto& [stream, work] : g_driven->queued) in_flight += work.size();
  g_driven->beside.push_back(in_flight);
  return CUDA_SUCCESS;
}
CUresult to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const std::lock_guard hold(g_driven->lock);
  g_driven->queued[stream].emplace_back(
      [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}
CUresult to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  const std::lock_guard hold(g_driven->lock);
  ++g_driven->copies_in;
  g_driven->queued[stream].emplace_back(
      [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  return CUDA_SUCCESS;
}
CUresult beside(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const std::lock_guard hold(g_driven->lock);
  ++g_driven->copies_beside;
  g_driven->queued[stream].emplace_back([=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *out = reinterpret_cast<CUdeviceptr>(at);
  return at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult unreserve(CUdeviceptr at, size_t bytes) {
  ::munmap(reinterpret_cast<void*>(at), bytes);
  return CUDA_SUCCESS;
}
CUresult set(CUdeviceptr to, unsigned value, size_t words, CUstream stream) {
  const std::lock_guard hold(g_driven->lock);
  EXPECT_EQ(value, 0u);
  g_driven->queued[stream].emplace_back(
      [=] { std::memset(reinterpret_cast<void*>(to), 0, 4 * words); });
  ++g_driven->sets;
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, CUstream, void** arguments, void**) {
  namespace digest = swap::digest;
  const std::lock_guard hold(g_driven->lock);
  ++g_driven->launches;
  const auto& batch = *static_cast<const digest::Batch*>(arguments[0]);
  auto* out = reinterpret_cast<digest::Digest*>(*static_cast<const CUdeviceptr*>(arguments[3]));
  for (unsigned i = 0; g_driven->kernels_write && i < blocks; ++i) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(batch.address[i]);
    const auto digest_at = [&](int point) {
      return digest::of_words(words, digest::kPieceWords,
                              *static_cast<const std::uint64_t*>(arguments[point]));
    };
    out[i] = {digest_at(1), digest_at(2)};
    if (g_driven->computes_wrongly) out[i].b = out[i].a;
  }
  return CUDA_SUCCESS;
}

void drive_digests() {
  g_driver.cuLibraryLoadData = [](CUlibrary* out, const void*, CUjit_option*, void**, unsigned,
                                  CUlibraryOption*, void**, unsigned) {
    *out = reinterpret_cast<CUlibrary>(0x70);
    return CUDA_SUCCESS;
  };
  g_driver.cuLibraryGetKernel = [](CUkernel* out, CUlibrary, const char*) {
    *out = reinterpret_cast<CUkernel>(0x80);
    return CUDA_SUCCESS;
  };
  g_driver.cuLibraryUnload = [](CUlibrary) { return CUDA_SUCCESS; };
  g_driver.cuLaunchKernel = launch;
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  g_driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* out, void* at, unsigned) {
    *out = reinterpret_cast<CUdeviceptr>(at);
    return CUDA_SUCCESS;
  };
}

void watch_all(Faults& faults) {
  SWITCHYARD_WATCH(faults, cuMemCreate);
  SWITCHYARD_WATCH(faults, cuMemMap);
  SWITCHYARD_WATCH(faults, cuMemSetAccess);
  SWITCHYARD_WATCH(faults, cuMemcpyDtoHAsync_v2);
  SWITCHYARD_WATCH(faults, cuMemcpyHtoDAsync_v2);
  SWITCHYARD_WATCH(faults, cuMemcpyDtoDAsync_v2);
  SWITCHYARD_WATCH(faults, cuMemsetD32Async);
  SWITCHYARD_WATCH(faults, cuLaunchKernel);
  SWITCHYARD_WATCH(faults, cuLibraryLoadData);
  SWITCHYARD_WATCH(faults, cuLibraryGetKernel);
  SWITCHYARD_WATCH(faults, cuMemHostRegister_v2);
  SWITCHYARD_WATCH(faults, cuMemHostGetDevicePointer_v2);
  SWITCHYARD_WATCH(faults, cuStreamCreate);
  SWITCHYARD_WATCH(faults, cuEventCreate);
  SWITCHYARD_WATCH(faults, cuEventRecord);
  SWITCHYARD_WATCH(faults, cuEventSynchronize);
}

}  // namespace

PipelineTest::PipelineTest() {
  g_driven = &driven_;
  swap::clear_digests();
  g_driver.cuMemCreate = create;
  g_driver.cuMemRelease = release;
  g_driver.cuMemMap = map;
  g_driver.cuMemUnmap = unmap;
  g_driver.cuMemSetAccess = access;
  g_driver.cuMemcpyDtoHAsync_v2 = to_host;
  g_driver.cuMemcpyHtoDAsync_v2 = to_device;
  g_driver.cuMemcpyDtoDAsync_v2 = beside;
  g_driver.cuMemAddressReserve = reserve;
  g_driver.cuMemAddressFree = unreserve;
  g_driver.cuMemsetD32Async = set;
  g_driver.cuStreamCreate = [](CUstream* out, unsigned) {
    const std::lock_guard hold(g_driven->lock);
    *out = reinterpret_cast<CUstream>(++g_driven->streams);
    return CUDA_SUCCESS;
  };
  g_driver.cuStreamDestroy_v2 = [](CUstream stream) {
    const std::lock_guard hold(g_driven->lock);
    EXPECT_TRUE(g_driven->queued[stream].empty()) << "nobody waited for it";
    return CUDA_SUCCESS;
  };
  g_driver.cuStreamSynchronize = [](CUstream stream) {
    const std::lock_guard hold(g_driven->lock);
    g_driven->run(stream, SIZE_MAX);
    return CUDA_SUCCESS;
  };
  g_driver.cuEventCreate = [](CUevent* out, unsigned) {
    const std::lock_guard hold(g_driven->lock);
    static std::uintptr_t next = 0x60;
    *out = reinterpret_cast<CUevent>(next += 16);
    return CUDA_SUCCESS;
  };
  g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  g_driver.cuEventRecord = [](CUevent event, CUstream stream) {
    const std::lock_guard hold(g_driven->lock);
    g_driven->recorded[event] = {stream, g_driven->queued[stream].size()};
    return CUDA_SUCCESS;
  };
  g_driver.cuEventSynchronize = [](CUevent event) {
    const std::lock_guard hold(g_driven->lock);
    const auto [stream, behind] = g_driven->recorded[event];
    g_driven->run(stream, behind);
    return CUDA_SUCCESS;
  };
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
  drive_digests();
  watch_all(faults());
  fill_pool(0);
  add({kMiB2, kMiB2, kMiB2});
  add({kMiB2, kMiB2});
  g_resident = static_cast<std::int64_t>(5 * kMiB2);
}

PipelineTest::~PipelineTest() {
  give_host_room_back();
  {
    const RangesLock held;
    while (swap::count() != 0) {
      const swap::Range range = swap::take(0);
      for (unsigned c = 0; c < range.count; ++c) {
        swap::drop_copies(range.chunks[c]);
        // With its descriptor: the next test counts those of the process.
        if (range.chunks[c].handle != 0) swap::release(range.chunks[c]);
      }
      std::free(range.chunks);
    }
  }
  // Each is 256 MiB of this machine's memory, and one process may run all tests.
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  for (unsigned lane : {0u, 1u}) {
    while (swap::pinned_pool::slabs(lane) != 0 && swap::pinned_pool::drop(lane, 0)) continue;
  }
  ::munmap(arena_, kMostRanges * kRangeBytes);
  g_driven = nullptr;
}

void PipelineTest::take_host_room_but(std::uint64_t bytes) {
  while (swap::pinned_pool::free_bytes(0) > bytes) {
    taken_.push_back(swap::pinned_pool::take(0, kMiB2));
    ASSERT_TRUE(taken_.back());
  }
}

void PipelineTest::give_host_room_back() {
  for (auto& piece : taken_) swap::pinned_pool::give_back(piece);
  taken_.clear();
}

void PipelineTest::fill_pool(unsigned lane) {
  while (swap::pinned_pool::free_bytes(lane) < 64 * kMiB) {
    if (!swap::pinned_pool::grow(lane, UINT64_MAX)) break;
  }
}

void PipelineTest::add(const std::vector<std::uint64_t>& chunks) {
  ASSERT_LT(memories_.size(), kMostRanges);
  char* memory = arena_ + (kMostRanges - 1 - memories_.size()) * kRangeBytes;
  ::mprotect(memory, kRangeBytes, PROT_READ | PROT_WRITE);
  memories_.push_back(memory);
  swap::Range range{.address = reinterpret_cast<CUdeviceptr>(memory)};
  range.count = static_cast<unsigned>(chunks.size());
  range.chunks = static_cast<swap::Chunk*>(std::calloc(chunks.size(), sizeof(swap::Chunk)));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    range.chunks[i].bytes = chunks[i];
    range.bytes += chunks[i];
    const RangesLock held;
    ASSERT_EQ(swap::bring(range.chunks[i], range.address + i * kMiB2, range.properties),
              CUDA_SUCCESS);
  }
  range.asked = range.bytes;
  std::uint64_t key = 1 + memories_.size();
  for (std::uint64_t at = 0; at < range.bytes; at += 8, key = key * 6364136223846793005u + 1) {
    *reinterpret_cast<std::uint64_t*>(range.address + at) = key;
  }
  const RangesLock held;
  ASSERT_TRUE(swap::add(range));
  contents_.emplace_back(reinterpret_cast<const char*>(range.address), range.bytes);
}

char* PipelineTest::chunk_at(std::size_t range, unsigned chunk) const {
  return memories_[range] + chunk * kMiB2;
}

void PipelineTest::change(std::size_t range, unsigned chunk, std::uint64_t at) {
  char& byte = chunk_at(range, chunk)[at];
  byte = static_cast<char>(byte ^ 4);
  contents_[range][chunk * kMiB2 + at] = byte;
}

void PipelineTest::zero(std::size_t range, unsigned chunk) {
  std::memset(chunk_at(range, chunk), 0, kMiB2);
  contents_[range].replace(chunk * kMiB2, kMiB2, kMiB2, '\0');
}

namespace {

const char* parked_at(const swap::parking::ParkedPiece& piece) {
  CUdeviceptr at = 0;
  return swap::parking::reach(piece, at) == CUDA_SUCCESS ? reinterpret_cast<const char*>(at)
                                                         : nullptr;
}

}  // namespace

void PipelineTest::expect_nothing_lost() {
  const RangesLock held;
  const std::string zeros(kMiB2, '\0');
  std::int64_t resident = 0;
  for (std::size_t i = 0; i < memories_.size(); ++i) {
    swap::Range* range = swap::find(reinterpret_cast<CUdeviceptr>(memories_[i]));
    ASSERT_NE(range, nullptr);
    for (unsigned c = 0; c < range->count; ++c) {
      const swap::Chunk& chunk = range->chunks[c];
      const bool resides = chunk.handle != 0;
      if (resides) resident += static_cast<std::int64_t>(chunk.bytes);
      const char* there = resides && !chunk.contents_pending ? chunk_at(i, c)
                          : chunk.zero                       ? zeros.data()
                          : chunk.parked                     ? parked_at(chunk.parked)
                                         : static_cast<const char*>(chunk.host.at);
      ASSERT_NE(there, nullptr) << "range " << i << " chunk " << c << " is nowhere";
      EXPECT_EQ(std::memcmp(there, contents_[i].data() + c * kMiB2, chunk.bytes), 0)
          << "range " << i << " chunk " << c;
      if (!resides) swap::parking::leave(chunk.parked);
      if (resides && !chunk.contents_pending) {
        EXPECT_FALSE(chunk.zero);
        EXPECT_FALSE(chunk.parked) << "it holds another GPU's room for nothing";
        EXPECT_FALSE(chunk.host && chunk.digest == swap::Digest{}) << "a copy is kept for nothing";
      }
    }
  }
  EXPECT_EQ(resident, g_resident);
}

swap::Moved PipelineTest::out(std::uint64_t bytes) {
  const RangesLock held;
  return swap::move_out(0, bytes, note_resident);
}

namespace {

std::uint64_t g_may_be_there = 0;

// Counts memory of `lane` on GPU `on`, as long as that much may be there.
bool may_be_on(unsigned on, unsigned lane, std::uint64_t bytes) {
  if (bytes > g_may_be_there) return false;
  g_may_be_there -= bytes;
  swap::parking::count(lane, on, bytes);
  return true;
}

}  // namespace

swap::Moved PipelineTest::out_parking(std::uint64_t most) {
  const RangesLock held;
  g_may_be_there = most;
  const auto may_park = [](unsigned lane, std::uint64_t bytes) {
    return may_be_on(1, lane, bytes);
  };
  return swap::move_out(0, UINT64_MAX, note_resident, may_park);
}

swap::Moved PipelineTest::out_keeping(std::uint64_t most) {
  const RangesLock held;
  g_may_be_there = most;
  const auto may_keep = [](unsigned lane, std::uint64_t bytes) {
    return may_be_on(lane, lane, bytes);
  };
  return swap::keep(0, UINT64_MAX, note_resident, may_keep);
}

void PipelineTest::use_descriptors() {
  g_driver.cuMemExportToShareableHandle = export_memory;
  g_driver.cuMemImportFromShareableHandle = import_memory;
}

swap::Moved PipelineTest::move_on(std::uint64_t bytes) {
  const RangesLock held;
  return swap::move_on(0, bytes, [](unsigned) {});
}

swap::Moved PipelineTest::in(std::uint64_t bytes) {
  const RangesLock held;
  static std::uint64_t left;
  left = bytes;
  const auto may_come = [](unsigned, std::uint64_t wanted, bool) {
    if (wanted > left) return false;
    left -= wanted;
    return true;
  };
  const swap::Moved moved = swap::move_in(0, may_come, note_resident);
  swap::parking::sweep(0);
  return moved;
}

std::uint64_t PipelineTest::kept() {
  const RangesLock held;
  return swap::kept_bytes(0);
}

}  // namespace switchyard::shim::testing
