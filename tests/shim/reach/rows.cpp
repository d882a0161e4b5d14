#include "tests/shim/reach/rows.h"

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

namespace reach {

const Row kRows[] = {
#define CUDA_CALL(name, rule) {#name, reinterpret_cast<const void*>(&::name)},
#include "filtered/calls.def"
#include "filtered/plain.def"
#undef CUDA_CALL
    {nullptr, nullptr},
};

}  // namespace reach
