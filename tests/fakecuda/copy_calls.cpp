// Copies and sets. Every form becomes one CUDA_MEMCPY3D or CUDA_MEMSET_NODE_PARAMS.
#include <string.h>

#include <algorithm>

#include "arrays.h"
#include "memory.h"
#include "work.h"

using namespace fakecuda;

namespace {

struct Side {
  unsigned char* base = nullptr;
  std::size_t pitch = 0, height = 0;
  bool known = false;      // memory that the driver knows: it must be there, all of it
  std::size_t limit[3]{};  // of an array: bytes of a row, rows, layers
};

// What one side of a copy of any shape asks for.
struct Asked {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t pitch, height;
  std::size_t x, y, z;
};

Asked source_of(const CUDA_MEMCPY3D& p) {
  return {p.srcMemoryType, p.srcHost,     p.srcDevice, p.srcArray, p.srcPitch,
          p.srcHeight,     p.srcXInBytes, p.srcY,      p.srcZ};
}

Asked target_of(const CUDA_MEMCPY3D& p) {
  return {p.dstMemoryType, p.dstHost,     p.dstDevice, p.dstArray, p.dstPitch,
          p.dstHeight,     p.dstXInBytes, p.dstY,      p.dstZ};
}

bool side_of(const Asked& asked, std::size_t width, std::size_t rows, Side* side) {
  side->pitch = asked.pitch;
  side->height = asked.height;
  Range range;
  switch (asked.type) {
    case CU_MEMORYTYPE_HOST: {
      side->base = static_cast<unsigned char*>(const_cast<void*>(asked.host));
      const auto at = reinterpret_cast<CUdeviceptr>(asked.host);
      side->known = Ranges::all().find(at, &range);
      break;
    }
    case CU_MEMORYTYPE_DEVICE:
      side->base = reinterpret_cast<unsigned char*>(asked.device);
      side->known = true;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->base = reinterpret_cast<unsigned char*>(asked.device);
      side->known = Ranges::all().find(asked.device, &range);
      break;
    case CU_MEMORYTYPE_ARRAY: {
      const Array* found = array_of(asked.array);
      if (!found) return false;
      side->base = reinterpret_cast<unsigned char*>(found->address);
      side->pitch = found->pitch;
      side->height = found->rows;
      side->known = true;
      side->limit[0] = found->row_bytes;
      side->limit[1] = found->rows;
      side->limit[2] = std::max<std::size_t>(found->shape.Depth, 1);
      break;
    }
    default:
      return false;
  }
  if (!side->pitch) side->pitch = width;
  if (!side->height) side->height = rows;
  return side->base != nullptr;
}

bool is_device(const Side& side) {
  Range range;
  return Ranges::all().find(reinterpret_cast<CUdeviceptr>(side.base), &range) && range.on_device();
}

// ((z * height + y) * pitch + x). False: it is larger than any memory.
bool offset_of(const Side& side, std::size_t x, std::size_t y, std::size_t z, std::size_t* out) {
  return !__builtin_mul_overflow(z, side.height, out) && !__builtin_add_overflow(*out, y, out) &&
         !__builtin_mul_overflow(*out, side.pitch, out) && !__builtin_add_overflow(*out, x, out);
}

// What the copy touches of a side. False: it can't be.
bool span_of(const Asked& asked, const Side& side, const CUDA_MEMCPY3D& p, bool written,
             Span* span) {
  std::size_t end[3];
  if (__builtin_add_overflow(asked.x, p.WidthInBytes, &end[0]) ||
      __builtin_add_overflow(asked.y, p.Height, &end[1]) ||
      __builtin_add_overflow(asked.z, p.Depth, &end[2])) {
    return false;
  }
  for (int i = 0; i < 3; ++i) {
    if (side.limit[i] != 0 && end[i] > side.limit[i]) return false;
  }
  std::size_t first = 0, last = 0;
  if (!offset_of(side, asked.x, asked.y, asked.z, &first) ||
      !offset_of(side, end[0], end[1] - 1, end[2] - 1, &last)) {
    return false;
  }
  *span = {reinterpret_cast<CUdeviceptr>(side.base) + first, last - first, written};
  return true;
}

// Memory of the host alone isn't known here, and is the program's to answer for.
bool is_there(const Side& side, const Span& span) {
  return !side.known || Ranges::all().contain(span);
}

CUresult move(const CUDA_MEMCPY3D& p, const Side& from, const Span& read, const Side& to,
              const Span& written, int gpu) {
  Touch touch(gpu);
  if ((from.known && !touch.add(read)) || (to.known && !touch.add(written))) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (std::size_t z = 0; z < p.Depth; ++z) {
    for (std::size_t y = 0; y < p.Height; ++y) {
      const std::size_t a = ((p.srcZ + z) * from.height + p.srcY + y) * from.pitch + p.srcXInBytes;
      const std::size_t b = ((p.dstZ + z) * to.height + p.dstY + y) * to.pitch + p.dstXInBytes;
      memmove(to.base + b, from.base + a, p.WidthInBytes);
    }
  }
  return CUDA_SUCCESS;
}

Engine engine_for(bool from_device, bool to_device) {
  if (from_device && to_device) return kCopyAcross;
  return from_device ? kCopyOut : kCopyIn;
}

}  // namespace

CUresult fakecuda::copy_3d(const CUDA_MEMCPY3D& p, Work* work, CopiedBy by) {
  Side from, to;
  Span read, written;
  const Asked source = source_of(p), target = target_of(p);
  if (p.WidthInBytes == 0 || p.Height == 0 || p.Depth == 0 ||
      !side_of(source, p.WidthInBytes, p.Height, &from) ||
      !side_of(target, p.WidthInBytes, p.Height, &to) || !span_of(source, from, p, false, &read) ||
      !span_of(target, to, p, true, &written) || !is_there(from, read) || !is_there(to, written)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *work = copy_work(p, engine_for(is_device(from), is_device(to)),
                    p.WidthInBytes * p.Height * p.Depth, [=](int gpu) {
                      return move(p, from, read, to, written,
                                  by == CopiedBy::kEachOnesOwnGpu ? kItsOwnGpu : gpu);
                    });
  return CUDA_SUCCESS;
}

namespace {

CUDA_MEMCPY3D flat(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from, CUmemorytype from_type,
                   std::size_t bytes) {
  CUDA_MEMCPY3D p{};
  p.srcMemoryType = from_type;
  p.srcHost = reinterpret_cast<const void*>(from);
  p.srcDevice = from;
  p.dstMemoryType = to_type;
  p.dstHost = reinterpret_cast<void*>(to);
  p.dstDevice = to;
  p.WidthInBytes = bytes;
  p.Height = p.Depth = 1;
  return p;
}

CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D& f) {
  CUDA_MEMCPY3D p{};
  p.srcXInBytes = f.srcXInBytes, p.srcY = f.srcY;
  p.srcMemoryType = f.srcMemoryType, p.srcHost = f.srcHost;
  p.srcDevice = f.srcDevice, p.srcArray = f.srcArray, p.srcPitch = f.srcPitch;
  p.dstXInBytes = f.dstXInBytes, p.dstY = f.dstY;
  p.dstMemoryType = f.dstMemoryType, p.dstHost = f.dstHost;
  p.dstDevice = f.dstDevice, p.dstArray = f.dstArray, p.dstPitch = f.dstPitch;
  p.WidthInBytes = f.WidthInBytes, p.Height = f.Height, p.Depth = 1;
  return p;
}

CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER& f) {
  CUDA_MEMCPY3D p{};
  p.srcXInBytes = f.srcXInBytes, p.srcY = f.srcY, p.srcZ = f.srcZ;
  p.srcMemoryType = f.srcMemoryType, p.srcHost = f.srcHost, p.srcDevice = f.srcDevice;
  p.srcArray = f.srcArray, p.srcPitch = f.srcPitch, p.srcHeight = f.srcHeight;
  p.dstXInBytes = f.dstXInBytes, p.dstY = f.dstY, p.dstZ = f.dstZ;
  p.dstMemoryType = f.dstMemoryType, p.dstHost = f.dstHost, p.dstDevice = f.dstDevice;
  p.dstArray = f.dstArray, p.dstPitch = f.dstPitch, p.dstHeight = f.dstHeight;
  p.WidthInBytes = f.WidthInBytes, p.Height = f.Height, p.Depth = f.Depth;
  return p;
}

CUresult copy_async(const CUDA_MEMCPY3D& params, CUstream stream, OpRef* last = nullptr,
                    CopiedBy by = CopiedBy::kTheStreamsGpu) {
  FAKE_NEED_CONTEXT(context);
  if (params.WidthInBytes == 0 || params.Height == 0 || params.Depth == 0) return CUDA_SUCCESS;
  Work work;
  if (const CUresult status = copy_3d(params, &work, by)) return status;
  return put(stream, work, last);
}

CUresult copy(const CUDA_MEMCPY3D& params, CopiedBy by = CopiedBy::kTheStreamsGpu) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  OpRef last;
  const CUresult status = copy_async(params, nullptr, &last, by);
  wait_done(last);
  return status != CUDA_SUCCESS ? status : context->fault.load();
}

constexpr CUmemorytype kHost = CU_MEMORYTYPE_HOST, kDevice = CU_MEMORYTYPE_DEVICE,
                       kUnified = CU_MEMORYTYPE_UNIFIED;
CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUDA_MEMCPY3D array_flat(CUarray to_array, std::size_t to_x, CUdeviceptr to, CUmemorytype to_type,
                         CUarray from_array, std::size_t from_x, CUdeviceptr from,
                         CUmemorytype from_type, std::size_t bytes) {
  CUDA_MEMCPY3D p = flat(to, to_type, from, from_type, bytes);
  p.srcArray = from_array, p.srcXInBytes = from_x;
  p.dstArray = to_array, p.dstXInBytes = to_x;
  return p;
}
constexpr CUmemorytype kArray = CU_MEMORYTYPE_ARRAY;

CUresult set(CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element, std::size_t width,
             std::size_t height, CUstream stream, OpRef* last = nullptr) {
  FAKE_NEED_CONTEXT(context);
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = to;
  params.pitch = pitch;
  params.value = value;
  params.elementSize = element;
  params.width = width;
  params.height = height;
  if (to % element || !set_fits(params)) return CUDA_ERROR_INVALID_VALUE;
  return put(stream, set_work(params), last);
}

CUresult set_and_wait(CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element,
                      std::size_t width, std::size_t height) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  OpRef last;
  const CUresult status = set(to, pitch, value, element, width, height, nullptr, &last);
  wait_done(last);
  return status != CUDA_SUCCESS ? status : context->fault.load();
}

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy(flat(to, kUnified, from, kUnified, bytes));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_async(flat(to, kUnified, from, kUnified, bytes), stream);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  return copy(flat(to, kDevice, address(from), kHost, bytes));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream s) {
  FAKE_MAY_FAIL();
  return copy_async(flat(to, kDevice, address(from), kHost, bytes), s);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  return copy(flat(address(to), kHost, from, kDevice, bytes));
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream s) {
  FAKE_MAY_FAIL();
  return copy_async(flat(address(to), kHost, from, kDevice, bytes), s);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy(flat(to, kDevice, from, kDevice, bytes));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream s) {
  return copy_async(flat(to, kDevice, from, kDevice, bytes), s);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes) {
  return copy(flat(to, kDevice, from, kDevice, bytes), CopiedBy::kEachOnesOwnGpu);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                           std::size_t bytes, CUstream s) {
  return copy_async(flat(to, kDevice, from, kDevice, bytes), s, nullptr, CopiedBy::kEachOnesOwnGpu);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* p) {
  return p ? copy(from_2d(*p)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* p) { return cuMemcpy2D_v2(p); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* p, CUstream stream) {
  return p ? copy_async(from_2d(*p), stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* p) { return p ? copy(*p) : CUDA_ERROR_INVALID_VALUE; }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* p, CUstream stream) {
  return p ? copy_async(*p, stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* p) {
  return p ? copy(from_peer(*p), CopiedBy::kEachOnesOwnGpu) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* p, CUstream stream) {
  return p ? copy_async(from_peer(*p), stream, nullptr, CopiedBy::kEachOnesOwnGpu)
           : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoA_v2(CUarray to, std::size_t x, const void* from, std::size_t bytes) {
  return copy(array_flat(to, x, 0, kArray, nullptr, 0, address(from), kHost, bytes));
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, std::size_t x, const void* from, std::size_t bytes,
                              CUstream s) {
  return copy_async(array_flat(to, x, 0, kArray, nullptr, 0, address(from), kHost, bytes), s);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, std::size_t x, std::size_t bytes) {
  return copy(array_flat(nullptr, 0, address(to), kHost, from, x, 0, kArray, bytes));
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, std::size_t x, std::size_t bytes,
                              CUstream s) {
  return copy_async(array_flat(nullptr, 0, address(to), kHost, from, x, 0, kArray, bytes), s);
}
CUresult cuMemcpyDtoA_v2(CUarray to, std::size_t x, CUdeviceptr from, std::size_t bytes) {
  return copy(array_flat(to, x, 0, kArray, nullptr, 0, from, kDevice, bytes));
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, std::size_t x, std::size_t bytes) {
  return copy(array_flat(nullptr, 0, to, kDevice, from, x, 0, kArray, bytes));
}
CUresult cuMemcpyAtoA_v2(CUarray to, std::size_t to_x, CUarray from, std::size_t from_x,
                         std::size_t bytes) {
  return copy(array_flat(to, to_x, 0, kArray, from, from_x, 0, kArray, bytes));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t n) {
  return set_and_wait(to, 0, value, 1, n, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t n) {
  return set_and_wait(to, 0, value, 2, n, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t n) {
  return set_and_wait(to, 0, value, 4, n, 1);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t n, CUstream s) {
  return set(to, 0, value, 1, n, 1, s);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t n, CUstream s) {
  return set(to, 0, value, 2, n, 1, s);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t n, CUstream s) {
  return set(to, 0, value, 4, n, 1, s);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                         std::size_t height) {
  return set_and_wait(to, pitch, value, 1, width, height);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, std::size_t pitch, unsigned short value,
                          std::size_t width, std::size_t height) {
  return set_and_wait(to, pitch, value, 2, width, height);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width,
                          std::size_t height) {
  return set_and_wait(to, pitch, value, 4, width, height);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, std::size_t pitch, unsigned char value,
                           std::size_t width, std::size_t height, CUstream s) {
  return set(to, pitch, value, 1, width, height, s);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, std::size_t pitch, unsigned short value,
                            std::size_t width, std::size_t height, CUstream s) {
  return set(to, pitch, value, 2, width, height, s);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width,
                            std::size_t height, CUstream s) {
  return set(to, pitch, value, 4, width, height, s);
}

}  // extern "C"
