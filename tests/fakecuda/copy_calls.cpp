// Copies and sets. Every form becomes one CUDA_MEMCPY3D or CUDA_MEMSET_NODE_PARAMS.
#include <string.h>

#include "arrays.h"
#include "memory.h"
#include "work.h"

using namespace fakecuda;

namespace {

bool is_device(CUdeviceptr address) {
  Range range;
  return Ranges::all().find(address, &range) && range.on_device();
}

struct Side {
  unsigned char* base = nullptr;
  std::size_t pitch = 0, height = 0;
  bool device = false;
};

bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
             std::size_t pitch, std::size_t height, std::size_t width, std::size_t rows,
             Side* side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      side->base = static_cast<unsigned char*>(const_cast<void*>(host));
      break;
    case CU_MEMORYTYPE_DEVICE:
      side->base = reinterpret_cast<unsigned char*>(device);
      side->device = true;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->base = reinterpret_cast<unsigned char*>(device);
      side->device = is_device(device);
      break;
    case CU_MEMORYTYPE_ARRAY: {
      const Array* found = array_of(array);
      if (!found) return false;
      side->base = reinterpret_cast<unsigned char*>(found->address);
      pitch = found->pitch;
      height = found->rows;
      side->device = true;
      break;
    }
    default:
      return false;
  }
  side->pitch = pitch ? pitch : width;
  side->height = height ? height : rows;
  return side->base != nullptr;
}

Engine engine_for(bool from_device, bool to_device) {
  if (from_device && to_device) return kCopyAcross;
  return from_device ? kCopyOut : kCopyIn;
}

void move(const CUDA_MEMCPY3D& p, const Side& from, const Side& to) {
  for (std::size_t z = 0; z < p.Depth; ++z) {
    for (std::size_t y = 0; y < p.Height; ++y) {
      const std::size_t a = ((p.srcZ + z) * from.height + p.srcY + y) * from.pitch + p.srcXInBytes;
      const std::size_t b = ((p.dstZ + z) * to.height + p.dstY + y) * to.pitch + p.dstXInBytes;
      memmove(to.base + b, from.base + a, p.WidthInBytes);
    }
  }
}

}  // namespace

CUresult fakecuda::copy_3d(const CUDA_MEMCPY3D& p, Work* work) {
  Side from, to;
  if (!side_of(p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray, p.srcPitch, p.srcHeight,
               p.WidthInBytes, p.Height, &from) ||
      !side_of(p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray, p.dstPitch, p.dstHeight,
               p.WidthInBytes, p.Height, &to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *work = copy_work(p, engine_for(from.device, to.device), p.WidthInBytes * p.Height * p.Depth,
                    [p, from, to] { move(p, from, to); });
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

CUresult copy_async(const CUDA_MEMCPY3D& params, CUstream stream, OpRef* last = nullptr) {
  FAKE_NEED_CONTEXT(context);
  if (params.WidthInBytes == 0 || params.Height == 0 || params.Depth == 0) return CUDA_SUCCESS;
  Work work;
  if (const CUresult status = copy_3d(params, &work)) return status;
  return put(stream, work, last);
}

CUresult copy(const CUDA_MEMCPY3D& params) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  OpRef last;
  const CUresult status = copy_async(params, nullptr, &last);
  wait_done(last);
  return status;
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
  Range range;
  if (to % element || !Ranges::all().find(to, &range)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = to;
  params.pitch = pitch;
  params.value = value;
  params.elementSize = element;
  params.width = width;
  params.height = height;
  return put(stream, set_work(params), last);
}

CUresult set_and_wait(CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element,
                      std::size_t width, std::size_t height) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  OpRef last;
  const CUresult status = set(to, pitch, value, element, width, height, nullptr, &last);
  wait_done(last);
  return status;
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
  return copy(flat(to, kDevice, from, kDevice, bytes));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                           std::size_t bytes, CUstream s) {
  return copy_async(flat(to, kDevice, from, kDevice, bytes), s);
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
  return p ? copy(from_peer(*p)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* p, CUstream stream) {
  return p ? copy_async(from_peer(*p), stream) : CUDA_ERROR_INVALID_VALUE;
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
