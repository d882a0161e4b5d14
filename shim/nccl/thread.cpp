#include "shim/nccl/thread.h"

#include <stdlib.h>

#include <atomic>
#include <new>

#include "shim/log.h"

namespace switchyard::shim::nccl {

__thread Thread t_nccl;

namespace {

// Of groups that have ended, all empty. A forked child keeps them: each is whole at any moment.
struct State {
  std::atomic<Group*> kept[kMostKeptGroups];
};
constinit State g_state;

Group* take() {
  for (auto& kept : g_state.kept) {
    if (kept.load(std::memory_order_relaxed) == nullptr) continue;
    if (Group* there = kept.exchange(nullptr, std::memory_order_acquire)) return there;
  }
  void* memory = ::malloc(sizeof(Group));
  if (memory != nullptr) return ::new (memory) Group();
  static Once said;
  log_once(said, Level::kWarn,
           "no memory for what a group of NCCL holds: its operations are not counted");
  return nullptr;
}

void empty(Group& group) {
  if (group.any) {
    for (CountStep& step : group.pending) step = {};
  }
  group.any = false;
  group.births = 0;
  group.streams = 0;
  group.summing = 0;
}

}  // namespace

Group* group() {
  if (t_nccl.group == nullptr) t_nccl.group = take();
  return t_nccl.group;
}

void end_group() {
  Group* const ended = t_nccl.group;
  if (ended == nullptr) return;
  t_nccl.group = nullptr;
  empty(*ended);
  for (auto& kept : g_state.kept) {
    Group* none = nullptr;
    if (kept.compare_exchange_strong(none, ended, std::memory_order_release,
                                     std::memory_order_relaxed)) {
      return;
    }
  }
  ::free(ended);
}

}  // namespace switchyard::shim::nccl
