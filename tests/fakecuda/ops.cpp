#include "ops.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <chrono>
#include <thread>

namespace fakecuda {
namespace {

constexpr auto kPollEvery = std::chrono::microseconds(40);
// What work that waits on the engine spends between two looks.
constexpr std::uint64_t kSpinNs = 20 * kUs;

// The work for the host thread and for the poller. Never destroyed: threads outlive main.
struct Side {
  std::mutex lock;
  std::condition_variable done;
  std::deque<OpRef> host;
  std::condition_variable host_wake;
  bool host_started = false;
  std::vector<OpRef> polled;
  std::condition_variable poll_wake;
  bool poll_started = false;
};

Side& side() {
  static Side* only = new Side;
  return *only;
}

void run_host_functions() {
  Side& all = side();
  std::unique_lock held(all.lock);
  for (;;) {
    all.host_wake.wait(held, [&] { return !all.host.empty(); });
    const OpRef op = all.host.front();
    all.host.pop_front();
    held.unlock();
    if (op->effect) op->effect();
    held.lock();
    finish(op, std::max(op->at_ns, monotonic_ns()));
  }
}

void poll_memory() {
  Side& all = side();
  std::unique_lock held(all.lock);
  for (;;) {
    all.poll_wake.wait(held, [&] { return !all.polled.empty(); });
    poll_now();
    if (!all.polled.empty()) {
      held.unlock();
      std::this_thread::sleep_for(kPollEvery);
      held.lock();
    }
  }
}

// Puts a ready op where it runs. True: it is done already.
bool start(const OpRef& op) {
  Side& all = side();
  switch (op->where) {
    case Where::kInline:
      if (op->effect) op->effect();
      return true;
    case Where::kEngine:
      op->worker->push(op);
      return false;
    case Where::kHost:
      all.host.push_back(op);
      if (!all.host_started) start_thread(run_host_functions);
      all.host_started = true;
      all.host_wake.notify_one();
      return false;
    case Where::kPoll:
      if (op->condition()) return true;
      all.polled.push_back(op);
      if (!all.poll_started) start_thread(poll_memory);
      all.poll_started = true;
      all.poll_wake.notify_one();
      return false;
  }
  return true;
}

}  // namespace

std::mutex& ops_lock() { return side().lock; }
std::condition_variable& ops_done() { return side().done; }

void remember(void* object) {
  static auto* lock = new std::mutex;
  static auto* objects = new std::vector<void*>;
  std::lock_guard guard(*lock);
  objects->push_back(object);
}

void start_thread(std::function<void()> body) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::thread([body = std::move(body)] {
    prctl(PR_SET_TIMERSLACK, 1000);
    body();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void depend(const OpRef& op, const OpRef& on) {
  if (!on || on == op) return;
  if (on->done) {
    op->at_ns = std::max(op->at_ns, on->at_ns);
    return;
  }
  on->dependents.push_back(op);
  ++op->blockers;
}

void submit(const OpRef& op) {
  if (op->queued) ++*op->queued;
  if (op->blockers == 0 && start(op)) finish(op, std::max(op->at_ns, monotonic_ns()));
}

void finish(const OpRef& first, std::uint64_t at_ns) {
  first->at_ns = at_ns;
  std::vector<OpRef> ended{first};
  while (!ended.empty()) {
    const OpRef op = std::move(ended.back());
    ended.pop_back();
    op->done = true;
    op->effect = nullptr;
    op->condition = nullptr;
    if (op->queued) --*op->queued;
    for (const OpRef& next : op->dependents) {
      next->at_ns = std::max(next->at_ns, op->at_ns);
      if (--next->blockers == 0 && start(next)) ended.push_back(next);
    }
    op->dependents.clear();
  }
  side().done.notify_all();
}

void poll_now() {
  std::vector<OpRef> waiting;
  waiting.swap(side().polled);
  for (const OpRef& op : waiting) {
    if (op->condition()) {
      finish(op, std::max(op->at_ns, monotonic_ns()));
    } else {
      side().polled.push_back(op);
    }
  }
}

void wait_done(const OpRef& op) {
  if (!op) return;
  std::unique_lock held(ops_lock());
  ops_done().wait(held, [&] { return op->done; });
}

Worker::Worker(State& state, int gpu, Engine engine, int group)
    : seat_(state, gpu, engine, group) {}

void Worker::push(const OpRef& op) {
  ready_.push_back(op);
  if (!started_) start_thread([this] { run(); });
  started_ = true;
  wake_.notify_one();
}

OpRef Worker::pop(const OpRef& spun) {
  auto best = ready_.begin();
  for (auto it = ready_.begin(); it != ready_.end(); ++it) {
    if (*best == spun || (*it != spun && (*it)->priority < (*best)->priority)) best = it;
  }
  OpRef op = *best;
  ready_.erase(best);
  return op;
}

void Worker::run() {
  std::unique_lock held(ops_lock());
  while (!stopping_) {
    wake_.wait(held, [&] { return stopping_ || !ready_.empty(); });
    if (stopping_) break;
    held.unlock();
    seat_.take();
    held.lock();
    OpRef spun;
    while (!ready_.empty()) {
      const OpRef op = pop(spun);
      held.unlock();
      seat_.spend(op->cost_ns);
      if (op->condition && !op->condition()) {
        op->cost_ns = kSpinNs;
        held.lock();
        ready_.push_back(op);
        spun = op;
        continue;
      }
      if (op->effect) op->effect();
      seat_.count_operation();
      const std::uint64_t at_ns = seat_.clock();
      held.lock();
      finish(op, at_ns);
    }
    held.unlock();
    seat_.give_up();
    held.lock();
  }
  stopped_ = true;
  ended_.notify_all();
}

void Worker::stop() {
  std::unique_lock held(ops_lock());
  stopping_ = true;
  if (!started_) return;
  wake_.notify_one();
  ended_.wait(held, [&] { return stopped_; });
}

}  // namespace fakecuda
