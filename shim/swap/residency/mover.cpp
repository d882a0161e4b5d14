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
#include "shim/swap/memory/range_table.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/transfer/digest.h"
#include "shim/thread.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::mover {
namespace {

// The driver compiles the digest's kernel on it: as large as a program's first thread's.
constexpr std::size_t kStackBytes = 8u << 20;

struct State {
  std::atomic<std::int32_t> thread_of{0};               // the process that has a mover
  pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;  // held by the mover while it uses a context
};
constinit State g_state;

void* run(void*) {
  // What another thread captures must not notice us.
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  residency::Executor& executor = residency::executor();
  for (;;) {
    const std::uint32_t seen = process().mover.seen();
    std::uint64_t wait_ns = 0;
    {
      const Locked at_work(g_state.at_work);
      wait_ns = executor.look();
      executor.pause();
    }
    if (wait_ns != 0) process().mover.sleep(seen, wait_ns);
  }
}

}  // namespace

void start() {
  // A forked child has the parent's word but not its thread.
  const auto self = static_cast<std::int32_t>(::getpid());
  std::int32_t owner = g_state.thread_of.load(std::memory_order_acquire);
  if (owner == self || !g_state.thread_of.compare_exchange_strong(owner, self)) return;
  swap_digest();  // the environment is read on a thread of the application's
  if (!start_thread(run, kStackBytes)) {
    log_line(Level::kError, "no thread to move memory with: it stays on the device");
  }
}

void poke() { process().mover.wake(); }

Standstill::Standstill() : locked_(on()) {
  // While the contexts are away the mover needs the lock to bring them back.
  while (locked_) {
    Outside outside;
    ::pthread_mutex_lock(&g_state.at_work);
    if (outside.try_end()) break;
    ::pthread_mutex_unlock(&g_state.at_work);
  }
}

Standstill::~Standstill() {
  if (locked_) ::pthread_mutex_unlock(&g_state.at_work);
}

void context_made() {
  if (!on()) return;
  // The mover may be about to find that there is none: it sees this one, or we see that.
  const Standstill at_work;
  if (residency::executor().context_made()) poke();
}

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::swap::mover
