#include "work.h"
namespace fakecuda {
CUresult check_capture(Stream*) { return CUDA_SUCCESS; }
CUresult add_to_capture(Stream*, const Work&) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult refuse_unsafe() { return CUDA_SUCCESS; }
CUresult refuse_wait(Stream*) { return CUDA_SUCCESS; }
CUresult refuse_wait(Context*) { return CUDA_SUCCESS; }
CUresult wait_in_capture(Stream*, Event*) { return CUDA_SUCCESS; }
void record_in_capture(Stream*, Event*) {}
}  // namespace fakecuda
