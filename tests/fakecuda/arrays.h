// Arrays and mipmapped arrays: device memory with a shape.
//
// Threading: one lock inside.
#pragma once

#include "memory.h"

namespace fakecuda {

struct Work;

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  CUdeviceptr address = 0;
  std::size_t row_bytes = 0;  // of elements
  std::size_t pitch = 0;      // from row to row
  std::size_t rows = 0;
  std::size_t bytes = 0;
  bool owns = true;  // false: a level of a mipmapped array
};

// Null when the handle isn't a living array.
const Array* array_of(CUarray handle);

// Which GPU needs access to what is copied.
enum class CopiedBy { kTheStreamsGpu, kEachOnesOwnGpu };
// The work of a copy of any shape (copy_calls.cpp).
CUresult copy_3d(const CUDA_MEMCPY3D& params, Work* work, CopiedBy by = CopiedBy::kTheStreamsGpu);

}  // namespace fakecuda
