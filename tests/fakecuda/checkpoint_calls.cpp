// cuCheckpointProcess*: what checkpoint.h says.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "checkpoint.h"
#include "context.h"
#include "mps/client.h"

using namespace fakecuda;

namespace {

enum Call : std::uint32_t { kGetState, kGetThread, kLock, kTake, kRestore, kUnlock };

struct Checkpoint {
  std::mutex lock;
  std::condition_variable running;
  CUprocessState state = CU_PROCESS_STATE_RUNNING;
  OnGpus away;  // the driver's thread alone
};

Checkpoint& the_checkpoint() {
  static Checkpoint* only = new Checkpoint;  // lives as long as any thread
  return *only;
}

CUprocessState state_now() {
  std::lock_guard held(the_checkpoint().lock);
  return the_checkpoint().state;
}

void enter(CUprocessState state) {
  std::lock_guard held(the_checkpoint().lock);
  the_checkpoint().state = state;
  the_checkpoint().running.notify_all();
}

std::vector<Context*> contexts() {
  std::lock_guard held(ops_lock());
  return {driver()->contexts.begin(), driver()->contexts.end()};
}

// False: some accepted work is not done in time. `timeout_ms` 0: it has all the time.
bool finish_work(unsigned timeout_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (Context* context : contexts()) {
    const OpRef all = end_of_work(context);
    std::unique_lock held(ops_lock());
    const auto done = [&] { return all->done; };
    if (timeout_ms == 0) {
      ops_done().wait(held, done);
    } else if (!ops_done().wait_until(held, end, done)) {
      return false;
    }
  }
  return true;
}

void take_groups() {
  for (Context* context : contexts()) {
    for (Worker* worker : context->workers) worker->stop();
    control::close_groups(context->groups);
    context->groups = {};
  }
}

bool give_groups() {
  State& state = *driver()->state;
  for (Context* context : contexts()) {
    if (!control::open_groups(state, context->gpu, context->groups)) return false;
    for (unsigned e = 0; e < kEngines; ++e) {
      context->workers[e] =
          kept(new Worker(state, context->gpu, static_cast<Engine>(e), context->groups.entries[e]));
    }
  }
  return true;
}

// --- what the driver's own thread does ---

CUresult lock(unsigned timeout_ms) {
  if (state_now() != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
  enter(CU_PROCESS_STATE_LOCKED);
  if (finish_work(timeout_ms)) return CUDA_SUCCESS;
  enter(CU_PROCESS_STATE_RUNNING);
  return CUDA_ERROR_NOT_READY;
}

CUresult take() {
  if (state_now() != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  if (mps::attached() || driver()->state->has_exported()) return CUDA_ERROR_NOT_SUPPORTED;
  take_groups();
  the_checkpoint().away = driver()->state->take_off();
  enter(CU_PROCESS_STATE_CHECKPOINTED);
  return CUDA_SUCCESS;
}

CUresult restore(const int* to) {
  if (state_now() != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  if (!driver()->state->put_back(the_checkpoint().away, to)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!give_groups()) return CUDA_ERROR_UNKNOWN;
  enter(CU_PROCESS_STATE_LOCKED);
  return CUDA_SUCCESS;
}

CUresult unlock() {
  if (state_now() != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  enter(CU_PROCESS_STATE_RUNNING);
  return CUDA_SUCCESS;
}

CUresult answer(CheckpointRequest& request) {
  switch (request.call) {
    case kGetState:
      request.value = state_now();
      return CUDA_SUCCESS;
    case kGetThread:
      request.value = static_cast<int>(syscall(SYS_gettid));
      return CUDA_SUCCESS;
    case kLock:
      return lock(request.timeout_ms);
    case kTake:
      return take();
    case kRestore:
      return restore(request.to);
    case kUnlock:
      return unlock();
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void answer_requests() {
  CheckpointRequest& request =
      driver()->state->file().processes[driver()->state->self()].checkpoint;
  for (;;) {
    const std::uint32_t asked = request.asked;
    if (asked == request.answered) {
      futex_wait(request.asked, asked, 1'000'000'000);
      continue;
    }
    request.result = answer(request);
    request.answered = asked;
    futex_wake(request.answered);
  }
}

// --- who asks ---

int process_of(int pid) {
  State& state = *driver()->state;
  Locked locked(state);
  for (int i = 0; i < kMaxProcesses; ++i) {
    const ProcessEntry& entry = state.file().processes[i];
    if (entry.in_use && !entry.observer && state.pid_of(i) == pid) return i;
  }
  return -1;
}

bool begin_asking(CheckpointRequest& request) {
  State& state = *driver()->state;
  Locked locked(state);
  if (request.asker != 0 && state.alive(request.asker - 1)) return false;
  request.asker = state.self() + 1;
  return true;
}

// `call`: the name of the one that asks. `ask` fills the request in.
template <class Ask>
CUresult ask(const char* name, int pid, Call call, Ask fill, int* value = nullptr) {
  if (!driver()) return CUDA_ERROR_NOT_INITIALIZED;
  if (const CUresult wanted = wanted_failure(name)) return wanted;
  State& state = *driver()->state;
  const int process = process_of(pid);
  if (process < 0) return CUDA_ERROR_INVALID_VALUE;
  CheckpointRequest& request = state.file().processes[process].checkpoint;
  while (!begin_asking(request)) usleep(1000);
  request.call = call;
  fill(request);
  const std::uint32_t number = request.asked + 1;
  request.asked = number;
  futex_wake(request.asked);
  CUresult result = CUDA_ERROR_UNKNOWN;  // it died
  while (state.alive(process) && request.answered != number) {
    futex_wait(request.answered, request.answered, 20'000'000);
  }
  if (request.answered == number) {
    result = static_cast<CUresult>(request.result);
    if (value) *value = request.value;
  }
  request.asker = 0;
  return result;
}
constexpr auto kPlain = [](CheckpointRequest&) {};

int gpu_by_uuid(const CUuuid& uuid, int gpus) {
  for (int gpu = 0; gpu < gpus; ++gpu) {
    unsigned char known[16];
    gpu_uuid(gpu, known);
    if (memcmp(known, uuid.bytes, sizeof known) == 0) return gpu;
  }
  return -1;
}

// False: the pairs don't name every GPU of the machine once on each side.
bool read_pairs(const switchyard::cuda::RestoreArgs* args, int* to) {
  const int gpus = driver()->state->file().gpu_count;
  for (int gpu = 0; gpu < kMaxGpus; ++gpu) to[gpu] = gpu;
  if (!args || args->gpu_pairs_count == 0) return true;
  if (args->gpu_pairs_count != static_cast<unsigned>(gpus)) return false;
  std::uint64_t from_seen = 0, to_seen = 0;
  for (int i = 0; i < gpus; ++i) {
    const int from = gpu_by_uuid(args->gpu_pairs[i].oldUuid, gpus);
    const int target = gpu_by_uuid(args->gpu_pairs[i].newUuid, gpus);
    if (from < 0 || target < 0) return false;
    to[from] = target;
    from_seen |= 1ull << from, to_seen |= 1ull << target;
  }
  return from_seen == (1ull << gpus) - 1 && to_seen == from_seen;
}

}  // namespace

namespace fakecuda::checkpoint {

void wait_until_running() {
  Checkpoint& own = the_checkpoint();
  std::unique_lock held(own.lock);
  if (own.state == CU_PROCESS_STATE_CHECKPOINTED) {
    fprintf(stderr, "fakecuda: a call while the process is checkpointed\n");
    abort();
  }
  own.running.wait(held, [&] { return own.state == CU_PROCESS_STATE_RUNNING; });
}

void start() { start_thread(answer_requests); }

}  // namespace fakecuda::checkpoint

extern "C" {

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  return tid ? ask(__func__, pid, kGetThread, kPlain, tid) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  int value = 0;
  const CUresult result = ask(__func__, pid, kGetState, kPlain, &value);
  if (result != CUDA_SUCCESS) return result;
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  *state = static_cast<CUprocessState>(value);
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  return ask(__func__, pid, kLock,
             [&](CheckpointRequest& request) { request.timeout_ms = args ? args->timeoutMs : 0; });
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) {
  return ask(__func__, pid, kTake, kPlain);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  if (!driver()) return CUDA_ERROR_NOT_INITIALIZED;
  int to[kMaxGpus];
  if (!read_pairs(switchyard::cuda::RestoreArgs::of(args), to)) return CUDA_ERROR_INVALID_VALUE;
  return ask(__func__, pid, kRestore,
             [&](CheckpointRequest& request) { memcpy(request.to, to, sizeof to); });
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  return ask(__func__, pid, kUnlock, kPlain);
}

}  // extern "C"
