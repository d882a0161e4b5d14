#include <algorithm>

#include "arrays.h"
#include "work.h"

namespace fakecuda {
namespace {

struct Mipmapped {
  std::vector<Array*> levels;
};

struct Arrays {
  std::mutex lock;
  std::set<const Array*> arrays;
  std::set<Mipmapped*> mipmaps;
};

Arrays& all() {
  static Arrays* only = new Arrays;
  return *only;
}

std::size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  switch (shape.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return shape.NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2 * shape.NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4 * shape.NumChannels;
    default:
      return 0;
  }
}

constexpr std::size_t kMostExtent = 131072, kMostLayers = 16384;

Array* shaped(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const std::size_t element = element_bytes(shape);
  if (element == 0 || shape.Width == 0) return nullptr;
  if (shape.NumChannels != 1 && shape.NumChannels != 2 && shape.NumChannels != 4) return nullptr;
  // Beyond what a GPU has of any extent, as CU_DEVICE_ATTRIBUTE_MAXIMUM_... tell.
  if (shape.Width > kMostExtent || shape.Height > kMostExtent || shape.Depth > kMostLayers) {
    return nullptr;
  }
  auto* array = new Array;
  array->shape = shape;
  array->row_bytes = shape.Width * element;
  array->pitch = round_up(array->row_bytes, 512);
  array->rows = std::max<std::size_t>(shape.Height, 1);
  array->bytes = array->pitch * array->rows * std::max<std::size_t>(shape.Depth, 1);
  return array;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Array* array = shaped(shape);
  if (!array) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard api(context->api);
  array->address = allocate(context, array->bytes);
  if (!array->address) return delete array, CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard guard(all().lock);
  all().arrays.insert(array);
  *out = reinterpret_cast<CUarray>(array);
  return CUDA_SUCCESS;
}

void release_address(CUdeviceptr address) {
  Range range;
  if (Ranges::all().remove(address, &range)) release(range);
}

CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY_DESCRIPTOR& flat) {
  return {flat.Width, flat.Height, 0, flat.Format, flat.NumChannels, 0};
}
CUDA_ARRAY_DESCRIPTOR as_flat(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return {shape.Width, shape.Height, shape.Format, shape.NumChannels};
}

// What a call answers about an array.
template <class Out, class Answer>
CUresult about(CUarray handle, Out* out, Answer answer) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Array* array = array_of(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *out = answer(*array);
  return CUDA_SUCCESS;
}

}  // namespace

const Array* array_of(CUarray handle) {
  std::lock_guard guard(all().lock);
  const auto* array = reinterpret_cast<const Array*>(handle);
  return all().arrays.count(array) ? array : nullptr;
}

}  // namespace fakecuda

using namespace fakecuda;

extern "C" {

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* shape) {
  return shape ? create(out, as_3d(*shape)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  return shape ? create(out, *shape) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  FAKE_NEED_CONTEXT(context);
  return about(handle, out, [](const Array& array) { return as_flat(array.shape); });
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  FAKE_NEED_CONTEXT(context);
  return about(handle, out, [](const Array& array) { return array.shape; });
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle,
                                      CUdevice) {
  FAKE_NEED_DRIVER();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Array* array = array_of(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *out = {};
  out->size = round_up(array->bytes, 65536);
  out->alignment = 65536;
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  const Array* array = array_of(handle);
  if (!array || !array->owns) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::lock_guard api(context->api);
    wait_context(context);
    release_address(array->address);
  }
  std::lock_guard guard(all().lock);
  all().arrays.erase(array);
  delete array;
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                unsigned levels) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  if (!out || !shape || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* made = new Mipmapped;
  CUDA_ARRAY3D_DESCRIPTOR level = *shape;
  std::size_t bytes = 0;
  for (unsigned i = 0; i < levels; ++i) {
    Array* array = shaped(level);
    if (!array) {
      for (const Array* known : made->levels) delete known;
      delete made;
      return CUDA_ERROR_INVALID_VALUE;
    }
    array->owns = false;
    array->address = bytes;
    bytes += array->bytes;
    made->levels.push_back(array);
    const bool smallest = level.Width == 1 && level.Height <= 1 && level.Depth <= 1;
    if (smallest) break;
    level.Width = std::max<std::size_t>(level.Width / 2, 1);
    if (level.Height) level.Height = std::max<std::size_t>(level.Height / 2, 1);
    if (level.Depth) level.Depth = std::max<std::size_t>(level.Depth / 2, 1);
  }
  std::lock_guard api(context->api);
  const CUdeviceptr base = allocate(context, bytes);
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard guard(all().lock);
  for (Array* array : made->levels) {
    array->address += base;
    all().arrays.insert(array);
  }
  all().mipmaps.insert(made);
  *out = reinterpret_cast<CUmipmappedArray>(made);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
  FAKE_NEED_CONTEXT(context);
  auto* mipmapped = reinterpret_cast<Mipmapped*>(handle);
  std::lock_guard guard(all().lock);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!all().mipmaps.count(mipmapped)) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= mipmapped->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUarray>(mipmapped->levels[level]);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out,
                                               CUmipmappedArray handle, CUdevice) {
  FAKE_NEED_DRIVER();
  auto* mipmapped = reinterpret_cast<Mipmapped*>(handle);
  std::lock_guard guard(all().lock);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!all().mipmaps.count(mipmapped)) return CUDA_ERROR_INVALID_HANDLE;
  std::size_t bytes = 0;
  for (const Array* array : mipmapped->levels) bytes += array->bytes;
  *out = {};
  out->size = round_up(bytes, 65536);
  out->alignment = 65536;
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  auto* mipmapped = reinterpret_cast<Mipmapped*>(handle);
  {
    std::lock_guard guard(all().lock);
    if (!all().mipmaps.erase(mipmapped)) return CUDA_ERROR_INVALID_HANDLE;
    for (const Array* array : mipmapped->levels) all().arrays.erase(array);
  }
  std::lock_guard api(context->api);
  wait_context(context);
  release_address(mipmapped->levels[0]->address);
  for (Array* array : mipmapped->levels) delete array;
  delete mipmapped;
  return CUDA_SUCCESS;
}

}  // extern "C"
