#include "shim/client/process.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/client/client.h"
#include "shim/client/settings.h"
#include "shim/driver.h"
#include "shim/gate/gate.h"
#include "shim/ipc/exported.h"
#include "shim/ipc/opened.h"
#include "shim/memory/account.h"
#include "shim/memory/graph_memory.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"
#include "shim/slices/groups.h"
#include "shim/swap/mover.h"

extern "C" {
alignas(4096) unsigned char switchyard_page[switchyard::abi::kPageBytes];
// A memory page of its own, so that wiping it wipes nothing else.
alignas(4096) unsigned char switchyard_wiped_on_fork[4096];
}

namespace switchyard::shim {
namespace {

pthread_mutex_t g_begin = PTHREAD_MUTEX_INITIALIZER;

}  // namespace

__thread int t_lane = 0;

bool map_page(int fd) {
  const int flags = fd >= 0 ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  // The kernel changes the pages under the feet of running threads; by the bare system call,
  // because ThreadSanitizer takes the C library's mmap for a plain write of all of it.
  return ::syscall(SYS_mmap, switchyard_page, abi::kPageBytes, PROT_READ | PROT_WRITE, flags, fd,
                   0) == static_cast<long>(reinterpret_cast<std::uintptr_t>(switchyard_page));
}

void begin_process() {
  if (process().alive.load(std::memory_order_acquire) != 0) return;
  ::pthread_mutex_lock(&g_begin);
  if (process().alive.load(std::memory_order_relaxed) == 0) {
    // Either the first time ever, or we are a forked child: then the page, the connection, the
    // ledger and the channel groups are the parent's.
    map_page(-1);
    drop_inherited_connection();
    ledger::clear();
    account::clear();
    pools::clear();
    graph_memory::clear();
    groups::clear();
    gate::clear();
    swap::clear();
    ipc::clear_exported();
    ipc::clear_opened();
    ::madvise(switchyard_wiped_on_fork, sizeof(switchyard_wiped_on_fork), MADV_WIPEONFORK);
    process().alive.store(1, std::memory_order_release);
  }
  ::pthread_mutex_unlock(&g_begin);
}

abi::Lane* lane_of_device(int device) {
  if (device < 0 || device >= static_cast<int>(abi::kMaxGpus) || disabled()) return nullptr;
  // A forked child may come here first, from an exit handler that ends the parent's context.
  if (process().alive.load(std::memory_order_acquire) == 0) begin_process();
  return &page().lanes[device];
}

int lane_index(const abi::Lane* lane) { return static_cast<int>(lane - page().lanes); }

abi::Lane* find_current_lane() {
  if (disabled()) {
    t_lane = -1;
    return nullptr;
  }
  begin_process();
  CUdevice device = 0;
  // No context: the call itself will say so; ask again next time.
  if (driver().cuCtxGetDevice == nullptr || driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return nullptr;
  }
  abi::Lane* lane = lane_of_device(device);
  t_lane = lane != nullptr ? device + 1 : -1;
  return lane;
}

}  // namespace switchyard::shim
