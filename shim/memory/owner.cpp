#include "shim/memory/owner.h"

#include "shim/capture.h"
#include "shim/client/process.h"
#include "shim/memory/account.h"
#include "shim/memory/context_memory.h"
#include "shim/memory/ledger.h"
#include "shim/memory/neighbours.h"

namespace switchyard::shim::memory {
namespace {

void owner_gone(int lane, std::uint64_t owner) {
  capture::owner_gone(lane, owner);
  neighbours::free_owned(lane, owner);
  context_memory::owner_gone(lane, owner);
  account::release(lane_of_device(lane), ledger::take_owned(lane, owner));
}

}  // namespace

std::uint64_t owner_of(CUcontext context) { return swap::made_context(context).id; }

std::uint64_t current_owner() {
  CUcontext context = nullptr;
  const auto ask = driver().cuCtxGetCurrent;
  return ask != nullptr && ask(&context) == CUDA_SUCCESS ? owner_of(context) : 0;
}

void context_created(int lane, CUcontext context) {
  if (lane_of_device(lane) != nullptr) swap::note_context(context, lane);
}

void context_gone(CUcontext context, const swap::Made& made) {
  if (made.id == 0) return;
  swap::forget_context(context, made);
  owner_gone(made.lane, made.id);
}

void primary_gone(int lane) { owner_gone(lane, 0); }

}  // namespace switchyard::shim::memory
