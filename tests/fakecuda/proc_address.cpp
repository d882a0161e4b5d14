// cuGetProcAddress: the newest symbol of a name that the asked version knows.
#include <string.h>

#include "context.h"

// The exported symbols by address only: their types don't matter here.
#define FAKE_ADDRESS(symbol) extern "C" char fakecuda_at_##symbol[] __asm__(#symbol);
#define CALL(version, plain, symbol) FAKE_ADDRESS(symbol)
#define CALL_TWIN(version, plain, symbol, twin) FAKE_ADDRESS(symbol) FAKE_ADDRESS(twin)
#include "calls.def"
#undef CALL
#undef CALL_TWIN

using namespace fakecuda;

namespace {

struct Row {
  int version;
  const char* plain;
  char* symbol;
  char* twin;
};

#define CALL(version, plain, symbol) {version, #plain, fakecuda_at_##symbol, nullptr},
#define CALL_TWIN(version, plain, symbol, twin) \
  {version, #plain, fakecuda_at_##symbol, fakecuda_at_##twin},
const Row kRows[] = {
#include "calls.def"
};

CUdriverProcAddressQueryResult find(const char* name, int version, bool per_thread, void** out) {
  const Row* best = nullptr;
  bool named = false;
  for (const Row& row : kRows) {
    if (strcmp(row.plain, name) != 0) continue;
    named = true;
    if (row.version <= version && (!best || row.version >= best->version)) best = &row;
  }
  *out = nullptr;
  if (!best) {
    return named ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  *out = per_thread && best->twin ? best->twin : best->symbol;
  return CU_GET_PROC_ADDRESS_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (!name || !out) return CUDA_ERROR_INVALID_VALUE;
  if (flags &
      ~(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found =
      find(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, out);
  if (status) *status = found;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  const CUresult status = cuGetProcAddress_v2(name, out, version, flags, nullptr);
  return status == CUDA_SUCCESS && !*out ? CUDA_ERROR_NOT_FOUND : status;
}

}  // extern "C"
