// What job_fuzz calls on buffers: it makes, fills, copies, reads and frees them. See job_fuzz.cpp.
//
// Threading: one thread.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace jobs {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
inline constexpr CUdeviceptr kNowhere = 0x1000;  // no device address
inline constexpr std::size_t kHostBytes = 4 * kMiB;

struct Buffer {
  CUdeviceptr at = 0;
  std::size_t bytes = 0;
  bool ordered = false;  // allocated in stream order
  std::size_t stream = 0;
};

class FuzzBuffers {
 protected:
  explicit FuzzBuffers(unsigned seed) : random_(seed) {
    for (CUstream& stream : streams_) cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : events_) cuEventCreate(&event, CU_EVENT_DEFAULT);
    cuMemAllocHost(&host_, kHostBytes);
    std::memset(host_, 7, kHostBytes);
    CUdevice device = 0;
    cuDeviceGetDefaultMemPool(&pool_, device);
  }

  std::size_t below(std::size_t bound) { return random_() % bound; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  CUresult say(const char* call, CUresult result, std::uint64_t value = 0) {
    std::printf("%d %s %d %llx\n", number_, call, static_cast<int>(result),
                static_cast<unsigned long long>(value));
    std::fflush(stdout);
    return result;
  }

  std::size_t size() {
    switch (below(8)) {
      case 0:
        return below(4096) + 1;
      case 1:
        return below(2 * kMiB) + 1;
      case 2:
        return (below(2) + 1) * 2 * kMiB;
      case 3:
        return 0;
      case 4:
        return one_in(2) ? SIZE_MAX - below(4096) : std::size_t{1} << (40 + below(24));
      default:
        return 2 * kMiB + below(2 * kMiB);
    }
  }

  // What a call that allocates gave; filled, so that its contents are known.
  void keep(const char* call, CUresult result, const Buffer& buffer) {
    if (say(call, result) != CUDA_SUCCESS) return;
    buffers_.push_back(buffer);
    say("fill", cuMemsetD8Async(buffer.at, 1, buffer.bytes, streams_[buffer.stream]));
    if (buffers_.size() > 24) drop(below(buffers_.size()));
  }
  void alloc() {
    Buffer made{.bytes = size(), .stream = below(kStreams)};
    keep("alloc", cuMemAlloc(&made.at, made.bytes), made);
  }
  void alloc_async() {
    Buffer made{.bytes = size(), .ordered = true, .stream = below(kStreams)};
    keep("allocAsync", cuMemAllocAsync(&made.at, made.bytes, streams_[made.stream]), made);
  }
  void pitch() {
    const bool any_width = one_in(4);
    const std::size_t width = any_width ? size() : below(2048),
                      height = below(any_width ? 8 : 2048);
    const unsigned element = one_in(5) ? 3 : 4;
    std::size_t row = 0;
    Buffer made{.stream = below(kStreams)};
    const CUresult result = cuMemAllocPitch(&made.at, &row, width, height, element);
    made.bytes = row * height;
    keep("pitch", result, made);
  }
  void managed() {
    Buffer made{.bytes = below(kMiB), .stream = below(kStreams)};
    const unsigned flags = one_in(4) ? 99 : CU_MEM_ATTACH_GLOBAL;
    keep("managed", cuMemAllocManaged(&made.at, made.bytes, flags), made);
  }
  void drop(std::size_t which) {
    say("free", cuMemFree(buffers_[which].at));
    forget(which);
  }
  void forget(std::size_t which) {
    buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void free() {
    if (!buffers_.empty()) drop(below(buffers_.size()));
  }
  void free_async() {
    if (buffers_.empty()) return;
    const std::size_t which = below(buffers_.size());
    const Buffer& buffer = buffers_[which];
    if (!buffer.ordered) cuCtxSynchronize();
    say("freeAsync", cuMemFreeAsync(buffer.at, streams_[buffer.stream]));
    forget(which);
  }
  void wrong_free() {
    say("free0", cuMemFree(0));
    say("freeWild", cuMemFree(kNowhere));
    if (!buffers_.empty()) say("freeInside", cuMemFree(any().at + 1));
    say("freeAsyncWild", cuMemFreeAsync(kNowhere, streams_[0]));
  }

  // Memory that can leave goes on to the next 2 MiB, where a driver's own ends at once.
  static bool ends_in_the_rest(const Buffer& buffer, std::size_t end) {
    return end > buffer.bytes && end < buffer.bytes + 4 * kMiB;
  }
  Buffer& any() { return buffers_[below(buffers_.size())]; }
  CUstream own(const Buffer& buffer) { return streams_[buffer.stream]; }

  void set() {
    if (buffers_.empty()) return;
    const Buffer& to = any();
    const auto value = static_cast<unsigned char>(random_());
    if (one_in(2)) {
      cuCtxSynchronize();
      say("set", cuMemsetD8(to.at, value, to.bytes));
    } else {
      say("setAsync", cuMemsetD32Async(to.at, value, to.bytes / 4, own(to)));
    }
  }
  void set_2d() {
    if (buffers_.empty()) return;
    const Buffer& to = any();
    const std::size_t row = below(2048), rows = below(64);
    const std::size_t from_row_to_row = row + below(100);
    if (ends_in_the_rest(to, from_row_to_row * rows)) return;
    say("set2D", cuMemsetD2D8Async(to.at, from_row_to_row, 5, row, rows, own(to)), to.bytes);
  }
  void copy_in() {
    if (buffers_.empty()) return;
    const Buffer& to = any();
    const std::size_t bytes = std::min(to.bytes, kHostBytes);
    if (one_in(2)) {
      cuCtxSynchronize();
      say("copyIn", cuMemcpyHtoD(to.at, host_, bytes));
    } else {
      say("copyInAsync", cuMemcpyHtoDAsync(to.at, host_, bytes, own(to)));
    }
  }
  void copy_across() {
    if (buffers_.empty()) return;
    const Buffer from = any(), to = any();
    cuCtxSynchronize();
    say("copyAcross", cuMemcpyDtoD(to.at, from.at, std::min(from.bytes, to.bytes)));
  }
  void copy_async() {
    if (buffers_.empty()) return;
    const Buffer from = any(), to = any();
    if (from.stream != to.stream) cuCtxSynchronize();
    const std::size_t bytes = std::min(from.bytes, to.bytes) / 2;
    say("copyAsync", cuMemcpyDtoDAsync(to.at, from.at, bytes, own(to)));
    if (from.stream != to.stream) cuCtxSynchronize();
  }
  void copy_2d() {
    if (buffers_.empty()) return;
    const Buffer& to = any();
    CUDA_MEMCPY2D p{};
    p.srcMemoryType = CU_MEMORYTYPE_HOST;
    p.srcHost = host_;
    p.srcPitch = 1024;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    p.dstDevice = to.at;
    p.dstPitch = below(3000);
    p.dstY = one_in(8) ? SIZE_MAX / 2 : below(8);
    p.dstXInBytes = below(64);
    p.WidthInBytes = 1 + below(900);
    p.Height = 1 + below(1024);
    if (ends_in_the_rest(to, (p.dstY + p.Height) * p.dstPitch + p.dstXInBytes)) return;
    cuCtxSynchronize();
    say("copy2D", cuMemcpy2D(&p), to.bytes);
  }
  // Past the end, and where nothing is. 64 MiB behind it, for the memory of a pool may go on.
  void copy_past() {
    say("copyWild", cuMemcpyDtoH(host_, kNowhere, 64));
    say("setWild", cuMemsetD8(kNowhere, 1, 64));
    say("copyHuge", cuMemcpyHtoD(kNowhere, host_, 16));
    if (buffers_.empty()) return;
    const Buffer& of = any();
    say("setPast", cuMemsetD8(of.at, 1, of.bytes + 64 * kMiB + below(kMiB)));
    say("setWrap", cuMemsetD8(of.at, 1, SIZE_MAX - below(4096)));
    say("set2DPast", cuMemsetD2D8(of.at, std::size_t{1} << 40, 1, 16, 16));
    say("acrossPast", cuMemcpyDtoD(of.at, kNowhere, 16));
  }
  // Of the end: all that was copied or set shows there.
  void read() {
    if (buffers_.empty()) return;
    const Buffer& from = any();
    const std::size_t bytes = std::min<std::size_t>(from.bytes, 4096);
    std::vector<unsigned char> data(bytes);
    cuCtxSynchronize();
    const CUresult result = cuMemcpyDtoH(data.data(), from.at + from.bytes - bytes, bytes);
    std::uint64_t sum = 1;
    for (const unsigned char byte : data) sum = sum * 31 + byte;
    say("read", result, result == CUDA_SUCCESS ? sum : 0);
  }

  static constexpr std::size_t kStreams = 3, kEvents = 4;
  std::mt19937 random_;
  int number_ = 0;
  std::vector<Buffer> buffers_;
  CUstream streams_[kStreams] = {};
  CUevent events_[kEvents] = {};
  void* host_ = nullptr;
  CUmemoryPool pool_ = nullptr;
};

}  // namespace jobs
