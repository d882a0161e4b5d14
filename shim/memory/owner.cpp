#include "shim/memory/owner.h"

#include "shim/client/process.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"

namespace switchyard::shim::memory {
namespace {

std::uint64_t key_of(CUcontext context) { return reinterpret_cast<std::uintptr_t>(context); }

}  // namespace

std::uint64_t current_owner() {
  CUcontext context = nullptr;
  const auto ask = driver().cuCtxGetCurrent;
  if (ask == nullptr || ask(&context) != CUDA_SUCCESS) return 0;
  ledger::Charge known;
  return ledger::look(ledger::Kind::kContext, key_of(context), known) ? key_of(context) : 0;
}

void context_created(int lane, CUcontext context) {
  if (lane_of_device(lane) == nullptr) return;
  ledger::note(ledger::Kind::kContext, key_of(context), {.lane = lane});
}

void context_gone(CUcontext context) {
  ledger::Charge known;
  if (!ledger::take(ledger::Kind::kContext, key_of(context), known)) return;
  account::release(lane_of_device(known.lane), ledger::take_owned(known.lane, key_of(context)));
}

void primary_gone(int lane) { account::release(lane_of_device(lane), ledger::take_owned(lane, 0)); }

}  // namespace switchyard::shim::memory
