// What an error of the driver says about the gate.
//
// Threading: pure.
#pragma once

#include "shim/driver.h"

namespace switchyard::shim {

// It doesn't do this here, and won't.
inline bool unable(CUresult error) {
  return error == CUDA_ERROR_NOT_SUPPORTED || error == CUDA_ERROR_INVALID_VALUE ||
         error == CUDA_ERROR_NOT_PERMITTED;
}

// The thread has no context to do anything in: whatever it calls next will fail, too.
inline bool no_context(CUresult error) {
  return error == CUDA_ERROR_INVALID_CONTEXT || error == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         error == CUDA_ERROR_NOT_INITIALIZED || error == CUDA_ERROR_DEINITIALIZED;
}

// A fault, or the end of its MPS server, has ended the context.
inline bool is_fault(CUresult error) {
  // CUDA_ERROR_CONTAINED and CUDA_ERROR_TENSOR_MEMORY_LEAK: older headers don't have them.
  if (static_cast<int>(error) == 226 || static_cast<int>(error) == 721) return true;
  switch (error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_RPC_FAILURE:
      return true;
    default:
      return false;
  }
}

// The context is lost: queued work never runs.
inline bool ends_context(CUresult error) {
  return is_fault(error) || error == CUDA_ERROR_DEINITIALIZED ||
         error == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace switchyard::shim
