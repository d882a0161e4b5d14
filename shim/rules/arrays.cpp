#include "shim/rules/arrays.h"

#include <algorithm>

namespace switchyard::shim::memory {
namespace {

// A format's smallest piece: `bits` for `side` x `side` elements. With `channels`, the bits are of
// one channel; else of the whole element.
struct Piece {
  unsigned bits;
  unsigned side;
  bool channels;
};

// Formats by number, as cuda.h gives them: older headers lack the later names.
Piece piece_of(unsigned format) {
  switch (format) {
    case 0x01:  // UNSIGNED_INT8
    case 0x08:  // SIGNED_INT8
      return {8, 1, true};
    case 0x02:  // UNSIGNED_INT16
    case 0x09:  // SIGNED_INT16
    case 0x10:  // HALF
      return {16, 1, true};
    case 0x03:  // UNSIGNED_INT32
    case 0x0a:  // SIGNED_INT32
    case 0x20:  // FLOAT
      return {32, 1, true};
    case 0xc0:  // UNORM_INT8X1, SNORM_INT8X1
    case 0xc6:
      return {8, 1, false};
    case 0xc1:  // UNORM_INT8X2, INT16X1, SNORM_INT8X2, INT16X1
    case 0xc3:
    case 0xc7:
    case 0xc9:
    case 0xa5:  // YUY2
      return {16, 1, false};
    case 0xc5:  // UNORM_INT16X4, SNORM_INT16X4, Y416
    case 0xcb:
    case 0xb1:
      return {64, 1, false};
    case 0x91:  // BC1, BC4: eight bytes for 4 x 4
    case 0x92:
    case 0x97:
    case 0x98:
      return {64, 4, false};
    case 0x93:  // BC2, BC3, BC5, BC6H, BC7: sixteen bytes for 4 x 4
    case 0x94:
    case 0x95:
    case 0x96:
    case 0x99:
    case 0x9a:
    case 0x9b:
    case 0x9c:
    case 0x9d:
    case 0x9e:
      return {128, 4, false};
    case 0xb0:  // NV12: 4:2:0
      return {12 * 4, 2, false};
    case 0x9f:  // P010, P016
    case 0xa1:
      return {24 * 4, 2, false};
    case 0xa2:  // NV16: 4:2:2
      return {16 * 4, 2, false};
    case 0xb2:  // Y444_PLANAR8
      return {24, 1, false};
    case 0xb3:  // Y444_PLANAR10
      return {48, 1, false};
    default:  // INT8X4, INT16X2, 101010_2, AYUV, Y210, P210, ..., and formats to come
      return {32, 1, false};
  }
}

// Saturating: a descriptor is the application's, and may hold anything.
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

std::uint64_t pieces(std::uint64_t extent, unsigned side) {
  return extent / side + (extent % side != 0 ? 1 : 0);
}

}  // namespace

std::uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  constexpr unsigned kNoMemory = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  if ((shape.Flags & kNoMemory) != 0) return 0;
  const Piece piece = piece_of(shape.Format);
  const std::uint64_t bits = std::uint64_t{piece.bits} * (piece.channels ? shape.NumChannels : 1);
  // Layers and faces of a cube are in Depth, and don't shrink from level to level.
  const bool layered = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  std::uint64_t width = shape.Width;
  std::uint64_t height = std::max<std::uint64_t>(shape.Height, 1);
  std::uint64_t depth = std::max<std::uint64_t>(shape.Depth, 1);
  std::uint64_t sum = 0;
  for (unsigned level = 0; level < std::clamp(levels, 1u, 64u); ++level) {
    const std::uint64_t area = times(pieces(width, piece.side), pieces(height, piece.side));
    const std::uint64_t volume = times(area, depth);
    const std::uint64_t bytes = volume > UINT64_MAX / 128 ? volume : times(volume, bits) / 8;
    sum = sum > UINT64_MAX - bytes ? UINT64_MAX : sum + bytes;
    if (width <= 1 && height <= 1 && (layered || depth <= 1)) break;
    width = std::max<std::uint64_t>(width / 2, 1);
    height = std::max<std::uint64_t>(height / 2, 1);
    if (!layered) depth = std::max<std::uint64_t>(depth / 2, 1);
  }
  return sum;
}

bool is_plain_array(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  constexpr std::uint64_t kAnyGpuHas = 16384;
  const Piece piece = piece_of(shape.Format);
  const bool channels = shape.NumChannels == 1 || shape.NumChannels == 2 || shape.NumChannels == 4;
  return piece.channels && piece.side == 1 && channels && shape.Flags == 0 && shape.Depth == 0 &&
         shape.Width != 0 && shape.Width <= kAnyGpuHas && shape.Height <= kAnyGpuHas;
}

CUDA_ARRAY3D_DESCRIPTOR narrowed(const CUDA_ARRAY3D_DESCRIPTOR& shape, int kept) {
  CUDA_ARRAY3D_DESCRIPTOR out = shape;
  const auto least = [](size_t extent) { return std::min<size_t>(extent, 1); };
  const bool cube = (shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;  // as wide as high, and six faces
  if (kept != 0 && !cube) out.Width = least(shape.Width);
  if (kept != 1 && !cube) out.Height = least(shape.Height);
  if (kept != 2 && !cube) out.Depth = least(shape.Depth);
  if (cube && kept != 0 && shape.Width == shape.Height) out.Width = out.Height = least(shape.Width);
  return out;
}

}  // namespace switchyard::shim::memory
