#include "shim/swap/residency/mover_context.h"

#include "shim/memory/ledger.h"
#include "shim/primary_context.h"

namespace switchyard::shim::swap {
namespace {

bool use(CUcontext context, unsigned lane) {
  CUdevice device = -1;
  // The driver may take the handle of one that has ended, and refuse what is done in it.
  return context != nullptr && driver().cuCtxSetCurrent(context) == CUDA_SUCCESS &&
         driver().cuCtxGetDevice(&device) == CUDA_SUCCESS && device == static_cast<int>(lane);
}

bool use_one_made(unsigned lane) {
  constexpr std::size_t kMost = 64;
  std::uint64_t contexts[kMost];
  const std::size_t found =
      ledger::keys(ledger::Kind::kContext, static_cast<int>(lane), contexts, kMost);
  for (std::size_t i = 0; i < found && i < kMost; ++i) {
    if (use(reinterpret_cast<CUcontext>(contexts[i]), lane)) return true;
  }
  return false;
}

}  // namespace

bool MoverContext::enter(unsigned lane) {
  CUcontext primary = nullptr;
  device_ = static_cast<CUdevice>(lane);
  const CUresult result = retain_active_primary(device_, primary);
  if (result == CUDA_SUCCESS && primary != nullptr) {
    // One reference at most, however often this is called before leave(): each more would keep the
    // context alive after the application's last release. Retained first, so that it never ends.
    if (retained_) driver().cuDevicePrimaryCtxRelease_v2(device_);
    retained_ = true;
    if (use(primary, lane)) return true;
  } else if (result == CUDA_SUCCESS) {
    retained_ = false;  // it was reset, and our reference with it
  }
  return use_one_made(lane);
}

void MoverContext::leave() {
  driver().cuCtxSetCurrent(nullptr);
  if (retained_) driver().cuDevicePrimaryCtxRelease_v2(device_);
  retained_ = false;
}

}  // namespace switchyard::shim::swap
