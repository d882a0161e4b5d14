// Rules for legacy IPC: cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle.
//
// Concept. We give (exported.h) and open (opened.h) handles of our own memory; all else is the
// driver's. Memory of another process is charged there, and only noted here: should it outlive its
// maker, the monitor charges it to who has it.
//
// Threading: any thread.
#pragma once

#include "shim/ipc/exported.h"
#include "shim/ipc/opened.h"
#include "shim/memory/ledger.h"
#include "shim/memory/owner.h"

namespace switchyard::shim::rules {

template <typename Original>
CUresult ipc_get_handle(Original original, CUipcMemHandle* handle, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  if (ipc::get_handle(handle, address, result)) return result;
  result = original(handle, address);
  CUdeviceptr base = 0;
  const auto ask = driver().cuMemGetAddressRange_v2;
  if (result == CUDA_SUCCESS && ask != nullptr && ask(&base, nullptr, address) == CUDA_SUCCESS) {
    ledger::stays(ledger::NoteKind::kPointer, base, Stays::kIpcExported);
  }
  return result;
}

// Of what the driver opened: how much there is, for as long as it is open. The driver counts opens.
template <typename Call>
CUresult open_by_driver(CUdeviceptr* address, Call call) {
  const CUresult result = call();
  size_t bytes = 0;
  const abi::Lane* lane = current_lane();
  const auto ask = driver().cuMemGetAddressRange_v2;
  if (result == CUDA_SUCCESS && lane != nullptr && ask != nullptr &&
      ask(nullptr, &bytes, *address) == CUDA_SUCCESS) {
    ledger::refer(ledger::NoteKind::kOpened, *address,
                  {.lane = lane_index(lane),
                   .bytes = bytes,
                   .owner = memory::current_owner(),
                   .why = Stays::kIpcImported});
  }
  return result;
}

template <typename Original>
CUresult ipc_open(Original original, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  CUresult result = CUDA_SUCCESS;
  if (ipc::open(address, handle, flags, result)) return result;
  return open_by_driver(address, [&] { return original(address, handle, flags); });
}

template <typename Original>
CUresult ipc_close(Original original, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  if (ipc::close(address, result)) return result;
  ledger::Charge opened;
  bool gone = false;
  const bool known = ledger::adjust(ledger::NoteKind::kOpened, address, -1, 0, opened, gone);
  result = original(address);
  if (!known || result == CUDA_SUCCESS) return result;
  ledger::refer(ledger::NoteKind::kOpened, address, opened);
  return result;
}

}  // namespace switchyard::shim::rules
