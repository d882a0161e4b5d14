// Modules, libraries, functions and what they tell of themselves.
#include <stdio.h>

#include <algorithm>

#include "modules.h"

namespace fakecuda {
namespace {

CUresult load(CUmodule* out, const void* image, Context* context) {
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  auto* module = new Module;
  module->context = context;
  if (!parse_ptx(static_cast<const char*>(image), module)) {
    delete module;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult unload(Module* module, Context* context) {
  {
    // As the driver: waits for the context's work with the context's lock held.
    std::lock_guard api(context->api);
    wait_context(context);
  }
  forget(module);
  return CUDA_SUCCESS;
}

int function_attribute(const Kernel* kernel, CUfunction_attribute which) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return kernel->local_bytes;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return 16;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return 70;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return 90;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return kernel->dynamic_shared_bytes ? kernel->dynamic_shared_bytes : 49152;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return -1;
    default:
      return 0;
  }
}

Kernel* kernel_of(CUfunction function) { return reinterpret_cast<Kernel*>(function); }
Kernel* kernel_of(CUkernel function) { return reinterpret_cast<Kernel*>(function); }

CUresult find_kernel(void** out, Module* module, const char* name) {
  if (!out || !name || !*name) return CUDA_ERROR_INVALID_VALUE;
  if (!known_module(module)) return CUDA_ERROR_INVALID_HANDLE;
  Kernel* kernel = module->find(name);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  *out = kernel;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

extern "C" {

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  FAKE_NEED_CONTEXT(context);
  FAKE_REFUSE_UNSAFE();
  return load(out, image, context);
}

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(out, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return cuModuleLoadData(out, image);
}

CUresult cuModuleLoad(CUmodule* out, const char* path) {
  FAKE_NEED_CONTEXT(context);
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "rb");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string text;
  char piece[4096];
  for (std::size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) text.append(piece, n);
  fclose(file);
  return load(out, text.c_str(), context);
}

CUresult cuModuleUnload(CUmodule handle) {
  FAKE_NEED_CONTEXT(context);
  auto* module = reinterpret_cast<Module*>(handle);
  if (!known_module(module)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_REFUSE_UNSAFE();
  return unload(module, context);
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  FAKE_NEED_CONTEXT(context);
  return find_kernel(reinterpret_cast<void**>(out), reinterpret_cast<Module*>(handle), name);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr*, std::size_t*, CUmodule handle, const char* name) {
  FAKE_NEED_CONTEXT(context);
  if (!name || !known_module(reinterpret_cast<Module*>(handle))) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_FOUND;  // the simulation's images have none
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  FAKE_NEED_DRIVER();
  return load(reinterpret_cast<CUmodule*>(out), image, nullptr);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  FAKE_NEED_DRIVER();
  auto* module = reinterpret_cast<Module*>(handle);
  if (!known_module(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (Context* context = current()) return unload(module, context);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  FAKE_NEED_DRIVER();
  return find_kernel(reinterpret_cast<void**>(out), reinterpret_cast<Module*>(handle), name);
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  FAKE_NEED_CONTEXT(context);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_module(reinterpret_cast<Module*>(handle))) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(handle);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  FAKE_NEED_CONTEXT(context);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(kernel))) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel, CUdevice) {
  FAKE_NEED_DRIVER();
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(kernel))) return CUDA_ERROR_INVALID_HANDLE;
  *value = function_attribute(kernel_of(kernel), which);
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice) {
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), which, value);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  FAKE_NEED_DRIVER();
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(function))) return CUDA_ERROR_INVALID_HANDLE;
  *value = function_attribute(kernel_of(function), which);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  FAKE_NEED_DRIVER();
  Kernel* kernel = kernel_of(function);
  if (!known_kernel(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > 232448) return CUDA_ERROR_INVALID_VALUE;
    kernel->dynamic_shared_bytes = value;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  FAKE_NEED_DRIVER();
  return known_kernel(kernel_of(function)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule* out, CUfunction function) {
  FAKE_NEED_DRIVER();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(function))) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(kernel_of(function)->module);
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12030
CUresult cuFuncGetName(const char** name, CUfunction function) {
  FAKE_NEED_DRIVER();
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(function))) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel_of(function)->name.c_str();
  return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 12040
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  FAKE_NEED_DRIVER();
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = kernel_of(function);
  if (!known_kernel(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= kernel->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->offsets[index];
  if (size) *size = kernel->sizes[index];
  return CUDA_SUCCESS;
}
#endif

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int threads, std::size_t, unsigned) {
  FAKE_NEED_DRIVER();
  if (!blocks || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(function))) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = threads > 1024 ? 0 : std::min(32, 2048 / threads);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     std::size_t shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize, std::size_t, int limit,
                                                   unsigned) {
  FAKE_NEED_DRIVER();
  if (!grid || !block) return CUDA_ERROR_INVALID_VALUE;
  if (!known_kernel(kernel_of(function))) return CUDA_ERROR_INVALID_HANDLE;
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = 132 * 2;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize size, std::size_t shared, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, size, shared, limit, 0);
}

}  // extern "C"
