#include "shim/contexts.h"

#include <algorithm>
#include <cstdint>

#include "shim/memory/ledger.h"

namespace switchyard::shim::swap {
namespace {

// Null, without an error: it isn't active. Else a reference is the caller's.
CUresult retain_active_primary(CUdevice device, CUcontext& context) {
  context = nullptr;
  unsigned flags = 0;
  int active = 0;
  const Driver& calls = driver();
  if (calls.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return CUDA_SUCCESS;
  }
  return calls.cuDevicePrimaryCtxRetain(&context, device);
}

bool use(CUcontext context, unsigned lane) {
  CUdevice device = -1;
  // The driver may take the handle of one that has ended, and refuse what is done in it.
  return context != nullptr && driver().cuCtxSetCurrent(context) == CUDA_SUCCESS &&
         driver().cuCtxGetDevice(&device) == CUDA_SUCCESS && device == static_cast<int>(lane);
}

}  // namespace

PrimaryContext::PrimaryContext(CUdevice device)
    : device_(device), result_(retain_active_primary(device, context_)) {}

PrimaryContext::~PrimaryContext() {
  if (get() != nullptr) driver().cuDevicePrimaryCtxRelease_v2(device_);
}

MadeContexts::MadeContexts(unsigned lane) {
  std::uint64_t keys[kMost];
  const std::size_t found =
      ledger::keys(ledger::Kind::kContext, static_cast<int>(lane), keys, kMost);
  all = found <= kMost;
  for (; count < std::min(found, kMost); ++count) {
    context[count] = reinterpret_cast<CUcontext>(keys[count]);
  }
}

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
  const MadeContexts made(lane);
  return std::any_of(made.begin(), made.end(), [lane](CUcontext one) { return use(one, lane); });
}

void MoverContext::leave() {
  driver().cuCtxSetCurrent(nullptr);
  if (retained_) driver().cuDevicePrimaryCtxRelease_v2(device_);
  retained_ = false;
}

}  // namespace switchyard::shim::swap
