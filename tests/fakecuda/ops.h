// Operations: what was put on streams, as a graph of what must come before what.
//
// Concept. An Op is one piece of work (a kernel, a copy, an event, a wait). It becomes ready when
// all that it depends on is done: the stream's previous op, an event, legacy-stream rules, a
// graph's edges. A ready op runs where it belongs: on an engine through a Worker, on the
// host-function thread, or at once. If it waits for a value in memory, it runs when a poller sees
// the value.
//
//   submitted ── last blocker done ──► ready ── ran ──► done ──► its dependents lose a blocker
//
// Threading: one lock for the process's ops (`ops_lock`). Effects on engines and host functions run
// without it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine.h"

namespace fakecuda {

enum class Where { kInline, kEngine, kHost, kPoll };

struct Op;
using OpRef = std::shared_ptr<Op>;
struct Worker;

struct Op {
  Where where = Where::kInline;
  Engine engine = kCompute;
  Worker* worker = nullptr;  // kEngine: which group's
  std::uint64_t cost_ns = 0;
  int priority = 0;                  // smaller runs first, as stream priorities
  std::function<void()> effect;      // may be empty
  std::function<bool()> condition;   // kPoll; of kEngine, if any: it goes on until this is so
  std::shared_ptr<unsigned> queued;  // the stream's count of what is not done

  unsigned blockers = 0;
  bool done = false;
  std::uint64_t at_ns = 0;  // when it ended, or the latest end among its blockers so far
  std::vector<OpRef> dependents;
};

std::mutex& ops_lock();
std::condition_variable& ops_done();

// REQUIRES for all of these: ops_lock held.
void depend(const OpRef& op, const OpRef& on);
void submit(const OpRef& op);  // after its dependencies were added
void finish(const OpRef& op, std::uint64_t at_ns);
void poll_now();  // some memory word may have changed

void wait_done(const OpRef& op);  // takes the lock; null: returns at once

// The thread that runs the ready ops of one channel group.
struct Worker {
  Worker(State& state, int gpu, Engine engine, int group);
  void push(const OpRef& op);  // REQUIRES: ops_lock
  void stop();                 // REQUIRES: nothing ready

 private:
  void run();
  // The next to get the engine: not `spun`, which has just had a step, if there is another.
  OpRef pop(const OpRef& spun);
  Seat seat_;
  std::deque<OpRef> ready_;
  std::condition_variable wake_;
  bool started_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  std::condition_variable ended_;
};

// Objects behind handles are never freed, so that a stale handle is refused, not followed. They are
// remembered, so that a leak checker can tell them from lost ones. Any thread, any lock held.
void remember(void* object);
template <class Object>
Object* kept(Object* object) {
  remember(object);
  return object;
}

// Starts a detached thread that takes no signals and naps precisely.
void start_thread(std::function<void()> body);

}  // namespace fakecuda
