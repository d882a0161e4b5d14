// Every name of calls.def exists: what no room implements answers CUDA_ERROR_NOT_SUPPORTED.
//
// The definitions are weak, so a room that implements a call replaces its stub at link time. Each
// has an address of its own, as the driver's have.
#include "driver.h"

#pragma GCC diagnostic ignored "-Wunused-function"

#define FAKE_STUB(symbol)                                       \
  extern "C" __attribute__((weak, visibility("default"), used)) \
  CUresult fakecuda_stub_##symbol() __asm__(#symbol);           \
  extern "C" CUresult fakecuda_stub_##symbol() { return CUDA_ERROR_NOT_SUPPORTED; }

#define CALL(version, plain, symbol) FAKE_STUB(symbol)
#define CALL_TWIN(version, plain, symbol, twin) FAKE_STUB(symbol)
#include "calls.def"
