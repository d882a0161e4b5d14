#include "shim/swap/mover.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/inside.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"
#include "shim/swap/memory/peers.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/transfer/digest.h"
#include "shim/thread.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::mover {
namespace {

// The driver compiles the digest's kernel on it: as large as a program's first thread's.
constexpr std::size_t kStackBytes = 8u << 20;
// While the contexts of another GPU are away.
constexpr std::uint64_t kAsideNs = 50'000'000;

struct State {
  std::atomic<std::int32_t> thread_of{0};               // the process that has a mover
  pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;  // held by the mover while it uses a context
};
constinit State g_states[abi::kMaxGpus];

void* run(void* of) {
  State& state = *static_cast<State*>(of);
  // What another thread captures must not notice us.
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  const auto lane = static_cast<unsigned>(&state - g_states);
  residency::Executor& executor = residency::executor(lane);
  for (;;) {
    const std::uint32_t seen = process().mover.seen();
    std::uint64_t wait_ns = kAsideNs;
    {
      const Locked at_work(state.at_work);
      const inside::Look look(lane);
      if (look.admitted()) {
        wait_ns = executor.look();
        executor.pause();
      }
    }
    if (wait_ns != 0) process().mover.sleep(seen, wait_ns);
  }
}

}  // namespace

void start(unsigned lane) {
  State& state = g_states[lane];
  // A forked child has the parent's word but not its thread.
  const auto self = static_cast<std::int32_t>(::getpid());
  std::int32_t owner = state.thread_of.load(std::memory_order_acquire);
  if (owner == self || !state.thread_of.compare_exchange_strong(owner, self)) return;
  swap_digest();  // the environment is read on a thread of the application's
  if (!start_thread(run, kStackBytes, &state)) {
    log_line(Level::kError, "no thread to move memory with: it stays on the device");
  }
}

void poke() { process().mover.wake(); }

// A mover uses contexts of all GPUs: it waits for the work in them.
Standstill::Standstill() : locked_(lanes()) {
  // While the contexts are away a mover needs its lock to bring them back.
  while (locked_ != 0) {
    Outside outside;
    for (unsigned lane = 0; lane < locked_; ++lane) ::pthread_mutex_lock(&g_states[lane].at_work);
    if (outside.try_end()) break;
    unlock_all();
  }
}

Standstill::~Standstill() { unlock_all(); }

void Standstill::unlock_all() const {
  for (unsigned lane = locked_; lane-- > 0;) ::pthread_mutex_unlock(&g_states[lane].at_work);
}

void context_made(unsigned lane) {
  if (lane >= lanes()) return;
  peers::context_made(lane);
  // The mover may be about to find that there is none: it sees this one, or we see that.
  const Standstill at_work;
  if (residency::executor(lane).context_made()) poke();
}

SWITCHYARD_RENEW(kState, g_states);

}  // namespace switchyard::shim::swap::mover
