// Rules for legacy IPC: cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle.
//
// Concept. What is ours is given (exported.h) and opened (opened.h) by us; all else is the
// driver's. Memory of another process is charged there.
//
// Threading: any thread.
#pragma once

#include "shim/ipc/exported.h"
#include "shim/ipc/opened.h"

namespace switchyard::shim::rules {

template <typename Original>
CUresult ipc_get_handle(Original original, CUipcMemHandle* handle, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  return ipc::get_handle(handle, address, result) ? result : original(handle, address);
}

template <typename Original>
CUresult ipc_open(Original original, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  CUresult result = CUDA_SUCCESS;
  return ipc::open(address, handle, flags, result) ? result : original(address, handle, flags);
}

template <typename Original>
CUresult ipc_close(Original original, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  return ipc::close(address, result) ? result : original(address);
}

}  // namespace switchyard::shim::rules
