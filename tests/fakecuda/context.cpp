#include "context.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "mps/client.h"
#include "visible.h"

namespace fakecuda {
namespace {

thread_local std::vector<Context*>* stack_of_thread = nullptr;
thread_local int per_thread_depth = 0;
std::atomic<bool> forked{false};
std::atomic<unsigned long long> next_id{1};

Driver& the_driver() {
  static Driver* only = new Driver;
  return *only;
}

// The ops that an op on `stream` must follow besides the stream's own.
void depend_on_others(Stream* stream, const OpRef& op) {
  Context* context = stream->context;
  if (stream->legacy) {
    for (Stream* other : context->streams) {
      if (other->blocking()) depend(op, other->last);
    }
    for (const auto& [thread, other] : context->thread_streams) depend(op, other->last);
  } else if (stream->blocking()) {
    depend(op, context->legacy_stream.last);
  }
}

}  // namespace

Driver* driver() {
  Driver& only = the_driver();
  return only.initialised && !forked ? &only : nullptr;
}

CUresult start_driver() {
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  static std::mutex once;
  std::lock_guard guard(once);
  Driver& only = the_driver();
  if (only.initialised) return CUDA_SUCCESS;
  only.state = State::get(false);
  if (!only.state) {
    fprintf(stderr, "fakecuda: %s\n", State::why());
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  if (only.state->devices() == 0) return CUDA_ERROR_NO_DEVICE;
  if (const CUresult refused = mps::attach(*only.state)) return refused;
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  only.initialised = true;
  checkpoint::start();
  return CUDA_SUCCESS;
}

int gpu_count() { return the_driver().state->devices(); }

bool reaches(CUdevice from, CUdevice to) {
  static const char* links = getenv("FAKECUDA_PEERS");
  const State& state = *the_driver().state;
  return are_linked(links, state.gpu_of(from), state.gpu_of(to));
}

std::size_t fresh_limit(CUlimit limit) {
  return limit == CU_LIMIT_STACK_SIZE ? 1024 : (limit == CU_LIMIT_PRINTF_FIFO_SIZE ? 7 : 8) * kMiB;
}

bool grow_context(Context* context, CUlimit limit, std::size_t value) {
  const bool local = limit == CU_LIMIT_STACK_SIZE;
  if (!local && limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) {
    return true;
  }
  if (value > std::size_t{1} << 46) return false;
  const std::uint64_t fresh = fresh_limit(limit);
  const std::uint64_t beyond =
      (value > fresh ? value - fresh : 0) * (local ? kProcessors * kThreadsOfProcessor : 1);
  std::lock_guard held(ops_lock());
  std::uint64_t& taken = context->grown[limit];
  State& state = *the_driver().state;
  if (beyond > taken && !state.charge(context->gpu, beyond - taken)) return false;
  if (beyond < taken && local) return true;
  if (beyond < taken) state.uncharge(context->gpu, taken - beyond);
  taken = beyond;
  return true;
}

CUresult make_context(int gpu, unsigned flags, Context** out) {
  Driver& fake = the_driver();
  if (!fake.state->charge(gpu, kContextBytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* context = kept(new Context);
  context->gpu = gpu;
  context->flags = flags;
  context->id = next_id++;
  if (mps::attached()) {
    mps::lend_groups(context->groups);
  } else if (!control::open_groups(*fake.state, gpu, context->groups)) {
    fake.state->uncharge(gpu, kContextBytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (unsigned e = 0; e < kEngines; ++e) {
    context->workers[e] =
        kept(new Worker(*fake.state, gpu, static_cast<Engine>(e), context->groups.entries[e]));
  }
  context->legacy_stream.context = context;
  context->legacy_stream.legacy = true;
  context->legacy_stream.id = next_id++;
  {
    Locked locked(*fake.state);
    ++fake.state->file().processes[fake.state->self()].contexts[fake.state->gpu_of(gpu)];
  }
  std::lock_guard held(ops_lock());
  fake.contexts.insert(context);
  *out = context;
  return CUDA_SUCCESS;
}

void destroy_context(Context* context) {
  Driver& fake = the_driver();
  wait_context(context);
  {
    std::lock_guard held(ops_lock());
    context->alive = false;
    fake.contexts.erase(context);
    for (Stream* stream : context->streams) {
      stream->alive = false;
      fake.streams.erase(stream);
    }
    context->streams.clear();
  }
  for (Worker* worker : context->workers) worker->stop();
  control::close_groups(context->groups);
  fake.state->uncharge(context->gpu, kContextBytes);
  for (const auto& [limit, bytes] : context->grown) fake.state->uncharge(context->gpu, bytes);
  Locked locked(*fake.state);
  --fake.state->file().processes[fake.state->self()].contexts[fake.state->gpu_of(context->gpu)];
}

bool living(Context* context) {
  std::lock_guard held(ops_lock());
  return the_driver().contexts.count(context) != 0;
}

std::vector<Context*>& context_stack() {
  if (!stack_of_thread)
    stack_of_thread = kept(new std::vector<Context*>);  // usable in late destructors
  return *stack_of_thread;
}

Context* current() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : stack.back();
}

CUresult need_current(Context** out) {
  *out = current();
  if (!*out) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult trouble = mps::trouble()) (*out)->fault = trouble;
  return (*out)->alive ? (*out)->fault.load() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

PerThread::PerThread() { ++per_thread_depth; }
PerThread::~PerThread() { --per_thread_depth; }
bool PerThread::active() { return per_thread_depth > 0; }

Stream* make_stream(Context* context, unsigned flags, int priority) {
  auto* stream = kept(new Stream);
  stream->context = context;
  stream->flags = flags;
  stream->priority = std::clamp(priority, -5, 0);
  stream->id = next_id++;
  return stream;
}

CUresult find_stream(CUstream handle, Stream** out) {
  if (handle == nullptr) handle = PerThread::active() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* context = nullptr;
    if (const CUresult status = need_current(&context)) return status;
    if (handle == CU_STREAM_LEGACY) {
      *out = &context->legacy_stream;
    } else {
      Stream*& mine = context->thread_streams[pthread_self()];
      if (!mine) mine = make_stream(context, 0, 0);
      *out = mine;
    }
    return CUDA_SUCCESS;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!the_driver().streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *out = stream;
  return CUDA_SUCCESS;
}

CUresult find_event(CUevent handle, Event** out) {
  auto* event = reinterpret_cast<Event*>(handle);
  if (!the_driver().events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  *out = event;
  return CUDA_SUCCESS;
}

void wait_for_room(Stream* stream, std::unique_lock<std::mutex>& held) {
  ops_done().wait(held, [&] { return *stream->queued < kQueueLength; });
}

void follow_stream(Stream* stream, const OpRef& op) {
  depend(op, stream->last);
  depend_on_others(stream, op);
}

void enqueue(Stream* stream, const OpRef& op, std::unique_lock<std::mutex>& held, bool bounded) {
  if (bounded) wait_for_room(stream, held);
  op->queued = stream->queued;
  follow_stream(stream, op);
  stream->last = op;
  submit(op);
}

OpRef engine_op(Stream* stream, Engine engine, std::uint64_t cost_ns,
                std::function<CUresult()> effect) {
  auto op = std::make_shared<Op>();
  op->where = Where::kEngine;
  op->engine = engine;
  op->worker = stream->context->workers[engine];
  op->cost_ns = cost_ns;
  op->priority = stream->priority;
  op->effect = [context = stream->context, effect = std::move(effect)] {
    CUresult fault = mps::trouble();
    if (!fault && (fault = effect()) != CUDA_SUCCESS) mps::tell_fault(fault);
    if (fault) context->fault = fault;
  };
  return op;
}

void wait_stream(Stream* stream) {
  OpRef last;
  {
    // Waiting for the legacy stream is waiting for what an op on it would wait for.
    std::unique_lock held(ops_lock());
    if (stream->legacy) {
      last = std::make_shared<Op>();
      follow_stream(stream, last);
      submit(last);
    } else {
      last = stream->last;
    }
  }
  wait_done(last);
}

OpRef end_of_work(Context* context) {
  OpRef all = std::make_shared<Op>();
  std::lock_guard held(ops_lock());
  depend(all, context->legacy_stream.last);
  for (Stream* stream : context->streams) depend(all, stream->last);
  for (const auto& [thread, stream] : context->thread_streams) depend(all, stream->last);
  submit(all);
  return all;
}

void wait_context(Context* context) { wait_done(end_of_work(context)); }

}  // namespace fakecuda
