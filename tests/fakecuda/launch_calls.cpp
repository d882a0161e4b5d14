// Launches of kernels and host functions.
#include "modules.h"

using namespace fakecuda;

namespace {

bool fits(const unsigned grid[3], const unsigned block[3]) {
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || block[i] == 0) return false;
  }
  return grid[1] <= 65535 && grid[2] <= 65535 && block[2] <= 64 &&
         1ull * block[0] * block[1] * block[2] <= 1024;
}

CUresult launch(CUfunction function, const unsigned grid[3], const unsigned block[3],
                unsigned shared, CUstream stream, void** params, void** extra) {
  FAKE_NEED_CONTEXT(context);
  auto* kernel = reinterpret_cast<Kernel*>(function);
  if (!known_kernel(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (!fits(grid, block)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Launch>();
  made->kernel = kernel;
  for (int i = 0; i < 3; ++i) {
    made->grid[i] = grid[i];
    made->block[i] = block[i];
  }
  made->shared_bytes = shared;
  if (params && extra) return CUDA_ERROR_INVALID_VALUE;
  if (!pack_arguments(*made, params, extra)) return CUDA_ERROR_INVALID_VALUE;
  const auto local = static_cast<std::size_t>(kernel->local_bytes);
  if (local && !grow_context(context, CU_LIMIT_STACK_SIZE, local)) return CUDA_ERROR_OUT_OF_MEMORY;
  return put(stream, kernel_work(std::move(made)));
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                        void** extra) {
  FAKE_MAY_FAIL();
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  return launch(function, grid, block, shared, stream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  FAKE_MAY_FAIL();
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return launch(function, grid, block, config->sharedMemBytes, config->hStream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                   CUstream stream, void** params) {
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  if (1ull * gx * gy * gz > 132 * 32) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return launch(function, grid, block, shared, stream, params, nullptr);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  FAKE_NEED_CONTEXT(context);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return put(stream, host_work(function, data));
}

}  // extern "C"
