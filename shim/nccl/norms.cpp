#include "shim/nccl/norms.h"

#include <pthread.h>
#include <string.h>

#include "shim/capture.h"
#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/gate/gate.h"
#include "shim/inside.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"
#include "shim/nccl/communicators.h"
#include "shim/nccl/square_norm.h"
#include "shim/own_kernel.h"
#include "shim/reset.h"
#include "square_norm_ptx.h"

namespace switchyard::shim::nccl::norms {
namespace {

using square_norm::Type;

constexpr unsigned kEntries = 256;  // of a GPU
// A marker that is late by so many steps is not awaited any more.
constexpr std::uint64_t kMissed = 8;
// An order that has stood for so many collectives is right. In that time the monitor looks anew at
// all that it knows at least twice (its policy/iterations.h).
constexpr std::uint64_t kProven = 8192;

// What the kernels write: a number for each block.
struct Results {
  double before[square_norm::kMostBlocks];
  double after[square_norm::kMostBlocks];
};

enum Stage : std::uint32_t { kFree, kClaimed, kPending, kSpoilt };

}  // namespace

// kFree ─ begin() ─► kClaimed ─ end() ─► kPending, kSpoilt ─ collect() ─► kFree
struct Entry {
  std::atomic<std::uint32_t> stage;
  unsigned lane;
  std::uint32_t what;
  std::uint64_t launched;
  std::uint64_t elements;
  unsigned before, after;  // blocks that write; 0: none does
  bool due;                // else it is told without norms
};

namespace {

struct Ring {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of all but `head`, entries and what is read
  std::atomic<CUcontext> context{nullptr};           // null: nothing is measured on this GPU
  std::uint64_t owner = 0;
  CUfunction kernel = nullptr;
  PinnedResults results;
  std::atomic<unsigned> head{0};
  std::atomic<unsigned> tail{0};
  Entry entries[kEntries] = {};
};

// The memory of a communicator's steps. Its calls come one after the other.
struct Cadence {
  std::uint64_t marker = 0;  // the number of the last one
  bool measured = false;     // the step that it began
  // The order, and the number of the first collective under it.
  std::uint64_t elements = 0;
  std::uint32_t stride = 0;
  std::uint64_t ordered_at = 0;
};

struct State {
  Ring rings[abi::kMaxGpus];
  std::atomic<std::uint32_t> unmeasured{0};
};
constinit State g_state;
// By slot, and made anew with each communicator.
constinit Cadence g_cadences[abi::kMostCommunicators];

Results& results_of(const Ring& ring, unsigned index) {
  return static_cast<Results*>(ring.results.host())[index];
}

void read_every() {
  if (on()) return;
  JobCard card;
  read_card(card);
  std::uint32_t every = ::strcmp(card.gradient_noise, "yes") == 0 ? 1 : 0;
  for (const char* at = card.gradient_noise; *at >= '0' && *at <= '9'; ++at) {
    every = every * 10 + static_cast<std::uint32_t>(*at - '0');
  }
  g_every.store(every, std::memory_order_relaxed);
}

// pre: the ring's lock, and a context of the GPU is current.
bool open(Ring& ring) {
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  const Driver& calls = driver();
  CUcontext context = nullptr;
  if (calls.cuCtxGetCurrent == nullptr || calls.cuCtxGetCurrent(&context) != CUDA_SUCCESS) {
    return false;
  }
  CUresult result = CUDA_SUCCESS;
  if (ring.kernel == nullptr) {
    result = load_kernel(kSquareNormPtx, "switchyard_square_norm", ring.kernel);
  }
  // Now, not at the first launch: that would wait for the context then.
  CUfunction function = nullptr;
  if (result == CUDA_SUCCESS && calls.cuKernelGetFunction != nullptr) {
    result = calls.cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(ring.kernel));
  }
  if (result == CUDA_SUCCESS && !ring.results.open(kEntries * sizeof(Results), 0xFF)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    static Once said;
    log_once(said, Level::kWarn, "gradient noise: the driver takes no kernel of ours (%d)",
             static_cast<int>(result));
    pass_over(Unmeasured::kKernel);
    return false;
  }
  ring.owner = memory::current_owner();
  ring.context.store(context, std::memory_order_release);
  return true;
}

bool known_type(ncclDataType_t type, Type& out) {
  switch (type) {
    case kNcclFloat32:
      out = Type::kFloat32;
      return true;
    case kNcclFloat16:
      out = Type::kFloat16;
      return true;
    case kNcclBfloat16:
      out = Type::kBfloat16;
      return true;
    default:
      return false;
  }
}

bool is_float(ncclDataType_t type) { return type >= kNcclFloat16; }

enum class Due { kMeasured, kTold, kPassedOver };

// Whether the step that the collective belongs to is measured.
Due due(const Sum& sum, std::uint64_t number) {
  const std::uint32_t every = g_every.load(std::memory_order_relaxed);
  if (every == 1) return Due::kMeasured;
  const abi::NormOrder& order = page().norm_orders[sum.slot];
  const std::uint32_t stride = order.stride.load(std::memory_order_acquire);
  if (stride == 0) return Due::kMeasured;
  const std::uint64_t elements = order.elements.load(std::memory_order_relaxed);
  Cadence& steps = g_cadences[sum.slot];
  if (stride != steps.stride || elements != steps.elements) {
    steps.stride = stride;
    steps.elements = elements;
    steps.ordered_at = number;
  }
  if (sum.sent == elements) {
    steps.marker = number;
    steps.measured = number / stride % every == 0;
  } else if (number - steps.marker > kMissed * stride) {
    return Due::kMeasured;
  }
  if (steps.measured) return Due::kMeasured;
  return number - steps.ordered_at < kProven ? Due::kTold : Due::kPassedOver;
}

// Null: all wait for the GPU.
Entry* claim(Ring& ring) {
  unsigned head = ring.head.load(std::memory_order_relaxed);
  for (;;) {
    Entry& entry = ring.entries[head % kEntries];
    if (entry.stage.load(std::memory_order_acquire) != kFree ||
        head - ring.tail.load(std::memory_order_acquire) >= kEntries) {
      return nullptr;
    }
    if (!ring.head.compare_exchange_weak(head, head + 1, std::memory_order_relaxed)) continue;
    entry.stage.store(kClaimed, std::memory_order_relaxed);
    return &entry;
  }
}

// Through the gate, as the program's own (rules/launch.h). How many blocks write; 0: it was
// refused.
unsigned put(const Ring& ring, const void* from, std::uint64_t count, Type type, double* out,
             CUstream stream) {
  abi::Lane* lane = current_lane();
  if (lane == nullptr) return 0;
  CUdeviceptr there =
      ring.results.device() + static_cast<CUdeviceptr>(reinterpret_cast<char*>(out) -
                                                       static_cast<char*>(ring.results.host()));
  auto type_number = static_cast<std::uint32_t>(type);
  void* arguments[] = {&from, &count, &type_number, &there};
  const unsigned blocks = square_norm::blocks_of(count);
  const switchyard::shim::Inside inside;
  const auto launch = [&] {
    return driver().cuLaunchKernel(ring.kernel, blocks, 1, 1, square_norm::kThreads, 1, 1, 0,
                                   stream, arguments, nullptr) == CUDA_SUCCESS
               ? blocks
               : 0;
  };
  constexpr std::uint32_t kNoConcern =
      abi::kTimeBursts | gate::kOfBursts | abi::kRecordLaunches | abi::kTellFaults;
  if ((lane->attention.load(std::memory_order_relaxed) & ~kNoConcern) == 0) return launch();
  const gate::Passage passage(*lane, stream, false,
                              {gate::WorkKind::kLaunch, {ring.kernel, blocks, 1, 1}});
  return launch();
}

bool written(const double* at, unsigned blocks) {
  for (unsigned i = 0; i < blocks; ++i) {
    const auto* word = reinterpret_cast<const volatile std::uint64_t*>(at + i);
    if (*word == square_norm::kUnwritten) return false;
  }
  return true;
}

// Their sum; what was read is ready for the next launch.
std::uint64_t take_sum(double* at, unsigned blocks) {
  double sum = 0;
  for (unsigned i = 0; i < blocks; ++i) sum += at[i];
  ::memset(at, 0xFF, blocks * sizeof(double));
  std::uint64_t bits = 0;
  ::memcpy(&bits, &sum, sizeof bits);
  return bits;
}

// As records::note().
void note(const Entry& entry, std::uint64_t before, std::uint64_t after) {
  const std::uint32_t number = page().process.normed.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number == 0) return;
  abi::Norm& norm = page().norms[(number - 1) % abi::kNorms];
  norm.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  norm.what.store(entry.what, std::memory_order_relaxed);
  norm.launched.store(entry.launched, std::memory_order_relaxed);
  norm.elements.store(entry.elements, std::memory_order_relaxed);
  norm.before.store(before, std::memory_order_relaxed);
  norm.after.store(after, std::memory_order_relaxed);
  norm.number.store(number, std::memory_order_release);
}

// pre: the ring's lock. False: the oldest entry is still waited for.
bool collect_oldest(Ring& ring) {
  const unsigned tail = ring.tail.load(std::memory_order_relaxed);
  Entry& entry = ring.entries[tail % kEntries];
  const std::uint32_t stage = entry.stage.load(std::memory_order_acquire);
  if (stage != kPending && stage != kSpoilt) return false;
  Results& results = results_of(ring, tail % kEntries);
  if (!written(results.before, entry.before) || !written(results.after, entry.after)) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint64_t before = take_sum(results.before, entry.before);
  const std::uint64_t after = take_sum(results.after, entry.after);
  if (stage == kPending) {
    note(entry, entry.due ? before : abi::kNotMeasured, entry.due ? after : abi::kNotMeasured);
  }
  entry.stage.store(kFree, std::memory_order_release);
  ring.tail.store(tail + 1, std::memory_order_release);
  return true;
}

unsigned in_flight(const Ring& ring) {
  return ring.head.load(std::memory_order_relaxed) - ring.tail.load(std::memory_order_relaxed);
}

// False: nothing.
bool collect_all(Ring& ring) {
  if (in_flight(ring) == 0 || ::pthread_mutex_trylock(&ring.lock) != 0) return false;
  bool any = false;
  while (ring.results.is_open() && in_flight(ring) != 0 && collect_oldest(ring)) any = true;
  ::pthread_mutex_unlock(&ring.lock);
  return any;
}

bool current_is(CUcontext context) {
  CUcontext current = nullptr;
  return driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context;
}

void forget() {
  g_every.store(0, std::memory_order_relaxed);
  renew(g_state);
}

}  // namespace
SWITCHYARD_RESET(kState, forget);

std::atomic<std::uint32_t> g_every{0};

void born(int slot, int lane) {
  read_every();
  if (!on()) return;
  g_cadences[slot] = {};
  const abi::Lane* current = current_lane();
  if (current == nullptr || lane_index(current) != lane) return;  // begin() says why
  const switchyard::shim::Inside inside;
  Ring& ring = g_state.rings[lane];
  const Locked locked(ring.lock);
  if (ring.context.load(std::memory_order_relaxed) == nullptr) open(ring);
}

bool may_be_gradient(const Sum& sum) {
  return on() && sum.slot >= 0 && sum.sent >= kFewestElements && is_float(sum.type) &&
         (sum.op == kNcclSum || sum.op >= kNcclAvg) && communicators::ranks(sum.slot) > 1;
}

void pass_over(Unmeasured why) {
  if ((g_state.unmeasured.fetch_or(bit_of(why), std::memory_order_relaxed) & bit_of(why)) != 0) {
    return;
  }
  page().process.unmeasured.fetch_or(bit_of(why), std::memory_order_relaxed);
  log_line(Level::kInfo, "gradient noise: a collective is not measured: %s",
           kUnmeasured[static_cast<unsigned>(why)].text);
}

Norm begin(const Sum& sum, std::uint64_t number) {
  if (!may_be_gradient(sum)) return {};
  Type type{};
  if (sum.op != kNcclSum && sum.op != kNcclAvg) return pass_over(Unmeasured::kOperator), Norm{};
  if (!known_type(sum.type, type)) return pass_over(Unmeasured::kType), Norm{};
  const Due asked = due(sum, number);
  if (asked == Due::kPassedOver || untouchable(sum.stream, false)) return {};
  const auto lane = static_cast<unsigned>(communicators::lane(sum.slot));
  Ring& ring = g_state.rings[lane];
  const CUcontext context = ring.context.load(std::memory_order_acquire);
  if (context == nullptr && (g_state.unmeasured & bit_of(Unmeasured::kKernel)) != 0) return {};
  if (context == nullptr || !current_is(context)) return pass_over(Unmeasured::kContext), Norm{};
  if (in_flight(ring) > kEntries / 2) collect_all(ring);
  Entry* entry = claim(ring);
  if (entry == nullptr) return {};
  entry->lane = lane;
  entry->what = static_cast<std::uint32_t>(sum.slot) | (sum.op == kNcclSum ? abi::kNormSummed : 0) |
                (sum.scattered ? abi::kNormScattered : 0);
  entry->launched = number;
  entry->elements = sum.sent;
  entry->before = entry->after = 0;
  entry->due = asked == Due::kMeasured;
  if (!entry->due) return {entry};
  Results& results = results_of(ring, static_cast<unsigned>(entry - ring.entries));
  entry->before = put(ring, sum.from, sum.sent, type, results.before, sum.stream);
  return {entry};
}

void end(const Norm& norm, const Sum& sum, ncclResult_t answer) {
  if (norm.entry == nullptr) return;
  const bool launched = answer == kNcclSuccess;
  if (answer == kNcclInProgress) pass_over(Unmeasured::kAsynchronous);
  Entry& entry = *norm.entry;
  Ring& ring = g_state.rings[entry.lane];
  Type type{};
  if (launched && entry.before != 0 && known_type(sum.type, type)) {
    Results& results = results_of(ring, static_cast<unsigned>(&entry - ring.entries));
    entry.after = put(ring, sum.to, sum.received, type, results.after, sum.stream);
  }
  const bool told = launched && (entry.after != 0 || !entry.due);
  if (launched && !told) pass_over(Unmeasured::kKernel);
  entry.stage.store(told ? kPending : kSpoilt, std::memory_order_release);
}

bool collect() {
  if (!on()) return false;
  bool any = false;
  for (Ring& ring : g_state.rings) any = collect_all(ring) || any;
  return any;
}

void carry_over(abi::Page& fresh) {
  fresh.process.unmeasured.fetch_or(g_state.unmeasured.load(std::memory_order_relaxed),
                                    std::memory_order_relaxed);
}

void context_gone(unsigned lane, std::uint64_t owner) {
  if (!on()) return;
  Ring& ring = g_state.rings[lane];
  const Locked locked(ring.lock);
  if (ring.context.load(std::memory_order_relaxed) == nullptr || ring.owner != owner) return;
  ring.context.store(nullptr, std::memory_order_release);
  ring.results.context_gone();
  for (Entry& entry : ring.entries) entry.stage.store(kFree, std::memory_order_relaxed);
  ring.head.store(0, std::memory_order_relaxed);
  ring.tail.store(0, std::memory_order_relaxed);
}

}  // namespace switchyard::shim::nccl::norms
