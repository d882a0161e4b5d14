// Contexts, streams and events of this process.
//
// Concept. A Context is made on a GPU, charges its overhead, and has one channel group per engine.
// A Stream is the tail of a chain of ops. The legacy default stream and the blocking streams wait
// for each other as the driver's do. Handles are the objects' addresses, checked against the set of
// living ones. Objects are small and never freed, so that a stale handle is refused, not followed.
//
// Locks, outer first: Context::api (a driver call that allocates, launches or frees; a launch into
// a full queue blocks with it held, as the driver does), then ops_lock.
//
// Threading: any thread. The stack of current contexts is the thread's own.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <set>
#include <string>

#include "checkpoint.h"
#include "control.h"
#include "driver.h"
#include "failures.h"
#include "ops.h"

namespace fakecuda {

inline constexpr unsigned kQueueLength = 1024;  // launches on a stream before one blocks

struct Capture;
struct GraphNode;
struct Context;

struct Stream {
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  bool legacy = false;
  bool alive = true;
  OpRef last;
  std::shared_ptr<unsigned> queued = std::make_shared<unsigned>(0);
  Capture* capture = nullptr;
  std::vector<GraphNode*> capture_tail;
  CUsynchronizationPolicy sync_policy = CU_SYNC_POLICY_AUTO;
  CUaccessPolicyWindow window{};

  bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  bool alive = true;
  bool recorded = false;
  OpRef op;
  Capture* capture = nullptr;  // recorded in this capture
  std::vector<GraphNode*> captured;
};

struct Context {
  int gpu = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  bool primary = false;
  std::atomic<bool> alive{true};
  std::atomic<CUresult> fault{CUDA_SUCCESS};  // what its work did wrong: every later call says so
  std::mutex api;
  control::Groups groups;
  std::array<Worker*, kEngines> workers{};
  Stream legacy_stream;
  std::map<unsigned long, Stream*> thread_streams;  // by thread
  std::set<Stream*> streams;
  std::map<int, std::size_t> limits;
  std::map<int, std::uint64_t> grown;  // by limit: what is taken beyond a fresh context
  std::set<Context*> peers;
};

struct Primary {
  Context* context = nullptr;
  unsigned retained = 0;
  unsigned flags = 0;
};

// What this process knows of the simulated machine.
struct Driver {
  State* state = nullptr;
  bool initialised = false;
  std::mutex contexts_lock;
  Primary primaries[kMaxGpus];
  std::set<Context*> contexts;
  std::set<Stream*> streams;
  std::set<Event*> events;
};

// The driver; null before cuInit and in a child forked after it.
Driver* driver();
CUresult start_driver();
int gpu_count();
// Whether a device reaches the memory of another one.
bool reaches(CUdevice from, CUdevice to);
inline bool valid(CUdevice device) { return device >= 0 && device < gpu_count(); }
// FAKE_NEED_DRIVER for a helper of several calls. `call`: the name of the one that uses it.
inline CUresult need_driver(const char* call) {
  checkpoint::wait_until_running();
  return driver() ? wanted_failure(call) : CUDA_ERROR_NOT_INITIALIZED;
}

// A limit's value in a fresh context.
std::size_t fresh_limit(CUlimit limit);
// Takes what a context needs so that a limit becomes `value`, or a kernel gets so much local
// memory. As on a GPU, local memory is taken for all threads that it can have at once, and kept.
// Heap and buffer are as large as their limits. False: there isn't enough.
bool grow_context(Context* context, CUlimit limit, std::size_t value);
inline constexpr unsigned kProcessors = 132, kThreadsOfProcessor = 2048;

CUresult make_context(int gpu, unsigned flags, Context** out);
void destroy_context(Context* context);  // waits for its work
bool living(Context* context);

// The stack of current contexts of this thread.
Context* current();
std::vector<Context*>& context_stack();
CUresult need_current(Context** out);

// A stream handle, null and the two special ones included, in the current context. Null is the
// legacy stream, or the thread's own inside a per-thread call (PerThread). REQUIRES: ops_lock.
CUresult find_stream(CUstream handle, Stream** out);
Stream* make_stream(Context* context, unsigned flags, int priority);
CUresult find_event(CUevent handle, Event** out);
inline CUresult find_both(CUevent handle, Event** event, CUstream stream_handle, Stream** stream) {
  const CUresult status = find_event(handle, event);
  return status ? status : find_stream(stream_handle, stream);
}

// Marks calls by their per-thread names (_ptsz, _ptds) on this thread.
struct PerThread {
  PerThread();
  ~PerThread();
  static bool active();
};

// Adds an op at the stream's end. Blocks while the queue is full when `bounded` (REQUIRES
// Context::api then, which stays held). `held` holds ops_lock.
void enqueue(Stream* stream, const OpRef& op, std::unique_lock<std::mutex>& held,
             bool bounded = true);
// The parts of it: waits while the queue is full; makes `op` follow all that it must.
void wait_for_room(Stream* stream, std::unique_lock<std::mutex>& held);
void follow_stream(Stream* stream, const OpRef& op);
// `effect`: what it answers but CUDA_SUCCESS is the context's fault from then on.
OpRef engine_op(Stream* stream, Engine engine, std::uint64_t cost_ns,
                std::function<CUresult()> effect);
void wait_stream(Stream* stream);
// An op that is done when all is that was put on the context before it.
OpRef end_of_work(Context* context);
void wait_context(Context* context);

}  // namespace fakecuda

// The beginning of a call: returns what a test wants it to return (failures.h). In the next two,
// too; the exported function itself must say it.
#define FAKE_MAY_FAIL() \
  if (const CUresult wanted_ = ::fakecuda::wanted_failure(__func__)) return wanted_
// Of one that needs the driver: returns what the driver returns before cuInit.
#define FAKE_NEED_DRIVER()                               \
  ::fakecuda::checkpoint::wait_until_running();          \
  ::fakecuda::Driver* const fake = ::fakecuda::driver(); \
  if (!fake) return CUDA_ERROR_NOT_INITIALIZED;          \
  FAKE_MAY_FAIL();                                       \
  (void)fake
#define FAKE_NEED_CONTEXT(context)        \
  FAKE_NEED_DRIVER();                     \
  ::fakecuda::Context* context = nullptr; \
  if (const CUresult status_ = ::fakecuda::need_current(&context)) return status_
