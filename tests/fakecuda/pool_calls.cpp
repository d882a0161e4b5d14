#include "memory.h"
#include "work.h"
namespace fakecuda {
void trim_pools_after_wait() {}
CUresult free_pooled(const Range&) { return CUDA_ERROR_NOT_SUPPORTED; }
}  // namespace fakecuda
