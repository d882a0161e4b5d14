#include "shim/memory/context_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/lock.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
#include "shim/memory/owner.h"
#include "shim/memory/pools.h"
#include "shim/reset.h"

namespace switchyard::shim::context_memory {

constinit std::atomic<const void*> g_known[kKnown] = {};

namespace {

constexpr unsigned kParts = static_cast<unsigned>(Part::kParts);
constexpr CUlimit kLimits[kParts] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE,
                                     CU_LIMIT_PRINTF_FIFO_SIZE};

// A context, by its owner.
struct Context {
  int lane = -1;
  std::uint64_t owner = 0;
  std::uint64_t fresh[kParts] = {};    // what it had at first: the limits
  std::uint64_t charged[kParts] = {};  // bytes beyond that
};

struct State {
  // In no order: a program makes few.
  Context* contexts = nullptr;
  std::size_t count = 0, places = 0;
  std::atomic<bool> lost{false};  // some kernel could not be noted
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

  Context* find(int lane, std::uint64_t owner) {
    Context* const end = contexts + count;
    Context* found = std::find_if(contexts, end, [=](const Context& each) {
      return each.lane == lane && each.owner == owner;
    });
    return found != end ? found : nullptr;
  }
  // False: no memory for it.
  bool add(const Context& context) {
    if (count == places) {
      const std::size_t more = std::max<std::size_t>(2 * places, 16);
      auto* grown = static_cast<Context*>(::realloc(contexts, more * sizeof(Context)));
      if (grown == nullptr) return false;
      contexts = grown;
      places = more;
    }
    contexts[count++] = context;
    return true;
  }
};
constinit State g_state;

std::uint64_t key_of(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

std::uint64_t up_to(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

unsigned attribute(CUdevice_attribute which, int device) {
  int value = 0;
  const auto ask = driver().cuDeviceGetAttribute;
  const bool known = ask != nullptr && ask(&value, which, device) == CUDA_SUCCESS && value > 0;
  return known ? static_cast<unsigned>(value) : 0;
}

// Notes the current context's limits as those of a fresh one. False: the driver does not say.
bool ask_fresh(Context& context) {
  const auto ask = driver().cuCtxGetLimit;
  for (unsigned part = 0; part < kParts; ++part) {
    size_t value = 0;
    if (ask == nullptr || ask(&value, kLimits[part]) != CUDA_SUCCESS) return false;
    context.fresh[part] = value;
  }
  return true;
}

// The calling thread's context as it is known by now; with `owner` and `lane` alone where nothing
// is.
bool look(Context& context) {
  const abi::Lane* lane = current_lane();
  if (lane == nullptr) return false;
  context.lane = lane_index(lane);
  context.owner = memory::current_owner();
  {
    const Locked locked(g_state.lock);
    if (const Context* known = g_state.find(context.lane, context.owner)) {
      context = *known;
      return true;
    }
  }
  if (!ask_fresh(context)) return false;
  const Locked locked(g_state.lock);
  if (const Context* known = g_state.find(context.lane, context.owner)) {
    context = *known;
    return true;
  }
  return g_state.add(context);
}

std::uint64_t bytes_of(int lane, Part part, std::uint64_t value) {
  return part == Part::kLocal ? local_bytes(lane, value) : value;
}

// Charges what the part takes beyond a fresh context, if it becomes `value`.
CUresult begin(const Context& context, Part part, std::uint64_t value, Change& change) {
  const auto which = static_cast<unsigned>(part);
  const std::uint64_t wanted = bytes_of(context.lane, part, value);
  const std::uint64_t fresh = bytes_of(context.lane, part, context.fresh[which]);
  change = {context.lane, context.owner, part, context.charged[which],
            wanted > fresh ? wanted - fresh : 0};
  abi::Lane* lane = lane_of_device(context.lane);
  std::uint64_t surplus = change.beyond > change.before ? change.beyond - change.before : 0;
  if (const CUresult refused = account::reserve(lane, surplus, pools::reclaim)) {
    change.lane = -1;
    return refused;
  }
  {
    const Locked locked(g_state.lock);
    Context* now = g_state.find(context.lane, context.owner);
    // Another thread may have raised it meanwhile, or the context has ended.
    const std::uint64_t there = now != nullptr ? now->charged[which] : change.beyond;
    const std::uint64_t more = change.beyond > there ? change.beyond - there : 0;
    if (now != nullptr && more != 0) now->charged[which] = change.beyond;
    surplus -= std::min(surplus, more);
  }
  account::release(lane, surplus);
  return CUDA_SUCCESS;
}

// `beyond` of the part that has `from` now. A change by another thread stands.
void lower(const Change& change, std::uint64_t from, std::uint64_t beyond) {
  std::uint64_t bytes = 0;
  {
    const Locked locked(g_state.lock);
    Context* now = g_state.find(change.lane, change.owner);
    if (now == nullptr) return;
    std::uint64_t& charged = now->charged[static_cast<unsigned>(change.part)];
    if (charged != from || beyond >= from) return;
    bytes = from - beyond;
    charged = beyond;
  }
  account::release(lane_of_device(change.lane), bytes);
}

// The driver's answer; 0 also where it has none.
int local_size(const void* function, int device) {
  auto* handle = const_cast<void*>(function);
  int bytes = 0;
  ledger::Charge ignored;
  if (g_state.lost.load(std::memory_order_relaxed)) return 0;  // it might be either
  if (ledger::look(ledger::NoteKind::kKernel, key_of(function), ignored)) {
    const auto ask = driver().cuKernelGetAttribute;
    const bool known = ask != nullptr && ask(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                             static_cast<CUkernel>(handle), device) == CUDA_SUCCESS;
    return known ? bytes : 0;
  }
  const auto ask = driver().cuFuncGetAttribute;
  const bool known = ask != nullptr && ask(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                           static_cast<CUfunction>(handle)) == CUDA_SUCCESS;
  return known ? bytes : 0;
}

void note(const void* function) {
  const std::size_t at = place_of(function);
  const bool taken = g_known[at].load(std::memory_order_relaxed) != nullptr;
  g_known[taken ? at ^ 1 : at].store(function, std::memory_order_relaxed);
}

}  // namespace

std::uint64_t local_bytes(int device, std::uint64_t bytes_of_thread) {
  constexpr std::uint64_t kThreadsOfWarp = 32, kWarpUnit = 512, kPage = 2u << 20;
  const std::uint64_t processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  const std::uint64_t threads =
      attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  if (bytes_of_thread > UINT32_MAX) return UINT64_MAX / 2;  // a limit may be anything
  const std::uint64_t warp = up_to(bytes_of_thread * kThreadsOfWarp, kWarpUnit);
  return up_to(warp * (threads / kThreadsOfWarp) * processors, kPage);
}

CUresult begin_limit(CUlimit limit, std::uint64_t value, Change& change) {
  const CUlimit* found = std::find(kLimits, kLimits + kParts, limit);
  Context context;
  if (found == kLimits + kParts || !look(context)) return CUDA_SUCCESS;
  return begin(context, static_cast<Part>(found - kLimits), value, change);
}

CUresult begin_kernel(const void* function, Change& change) {
  const abi::Lane* lane = current_lane();
  const int bytes = lane != nullptr ? local_size(function, lane_index(lane)) : 0;
  Context context;
  if (bytes > 0 && look(context)) {
    // A smaller one uses what is there.
    const auto local = static_cast<unsigned>(Part::kLocal);
    const auto need = std::max(static_cast<std::uint64_t>(bytes), context.fresh[local]);
    if (const CUresult refused = begin(context, Part::kLocal, need, change)) return refused;
  }
  note(function);
  return CUDA_SUCCESS;
}

void end(const Change& change, CUresult result) {
  if (change.lane < 0) return;
  if (result != CUDA_SUCCESS) {
    lower(change, change.beyond, change.before);
  } else if (change.part != Part::kLocal) {
    lower(change, change.before, change.beyond);
  }
  if (result != CUDA_SUCCESS && change.part == Part::kLocal) forget_kernels();
}

void owner_gone(int lane, std::uint64_t owner) {
  std::uint64_t bytes = 0;
  {
    const Locked locked(g_state.lock);
    Context* gone = g_state.find(lane, owner);
    if (gone == nullptr) return;
    for (const std::uint64_t charged : gone->charged) bytes += charged;
    *gone = g_state.contexts[--g_state.count];
  }
  forget_kernels();
  account::release(lane_of_device(lane), bytes);
}

void forget_kernels() {
  for (auto& each : g_known) {
    if (each.load(std::memory_order_relaxed) != nullptr) {
      each.store(nullptr, std::memory_order_relaxed);
    }
  }
}

void note_kernel(CUkernel kernel, CUlibrary library) {
  if (!ledger::note(ledger::NoteKind::kKernel, key_of(kernel), {.owner = key_of(library)})) {
    g_state.lost.store(true, std::memory_order_relaxed);
  }
}

void library_ends(CUlibrary library) { ledger::drop(ledger::NoteKind::kKernel, key_of(library)); }

// The parent's contexts are not the child's. Its notes are left where they are.
namespace {
void forget() {
  renew(g_state);
  forget_kernels();
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::context_memory
