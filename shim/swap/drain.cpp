#include "shim/swap/drain.h"

#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/memory/ledger.h"
#include "shim/swap/admission.h"

namespace switchyard::shim::swap {
namespace {

// Who is inside a call comes out as the GPU gets on; the accepted work ends. Longer than this only
// work that waits for a held thread, or for another GPU.
constexpr std::uint64_t kShutNs = 5'000'000'000;
constexpr std::uint64_t kDrainNs = 10'000'000'000;
constexpr std::uint64_t kNapNs = 50'000;

CUresult wait_for(CUcontext context) {
  const CUresult result = driver().cuCtxSetCurrent(context);
  return result == CUDA_SUCCESS ? driver().cuCtxSynchronize() : result;
}

CUresult wait_for_primary(unsigned lane) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  unsigned flags = 0;
  int active = 0;
  const Driver& calls = driver();
  if (calls.cuDeviceGet(&device, static_cast<int>(lane)) != CUDA_SUCCESS ||
      calls.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return CUDA_SUCCESS;
  }
  CUresult result = calls.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return result;
  result = wait_for(context);
  calls.cuDevicePrimaryCtxRelease_v2(device);
  return result;
}

}  // namespace

bool shut() {
  for (const std::uint64_t limit = monotonic_ns() + kShutNs; monotonic_ns() < limit;) {
    // A context that was made over memory that is away has shut it already.
    if (process().captures.load() == 0 && (admission::shut() || !admission::is_open())) {
      while (!admission::empty() && monotonic_ns() < limit) sleep_ns(kNapNs);
      // A capture begins inside an Entry: none can, from here on.
      if (admission::empty() && process().captures.load() == 0) return true;
      admission::open();
    }
    sleep_ns(kNapNs);
  }
  return false;
}

CUresult drain(unsigned lane) {
  constexpr std::size_t kMost = 64;
  std::uint64_t contexts[kMost];
  const std::size_t found =
      ledger::keys(ledger::Kind::kContext, static_cast<int>(lane), contexts, kMost);
  if (found > kMost) return CUDA_ERROR_NOT_SUPPORTED;
  admission::drain_until(monotonic_ns() + kDrainNs);
  CUresult result = wait_for_primary(lane);
  for (std::size_t i = 0; i < found && result == CUDA_SUCCESS; ++i) {
    // Opened meanwhile: somebody may capture again, which a wait would end.
    if (!admission::draining()) return CUDA_SUCCESS;
    result = wait_for(reinterpret_cast<CUcontext>(contexts[i]));
  }
  return result;
}

}  // namespace switchyard::shim::swap
