#include "shim/nccl/registrations.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/lock.h"
#include "shim/nccl/thread.h"
#include "shim/reset.h"

namespace switchyard::shim::nccl::registrations {

struct Pair {
  ncclComm_t comm;
  void** where;  // null: the handles are there
  pthread_t thread;
  void* handle;
  void* twins;
  Pair* next;
};

namespace {

struct State {
  Pair* first = nullptr;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// pre: the lock is held.
template <typename Which>
void erase(Which which) {
  for (Pair** at = &g_state.first; *at != nullptr;) {
    Pair* const pair = *at;
    if (!which(*pair)) {
      at = &pair->next;
      continue;
    }
    *at = pair->next;
    ::free(pair);
  }
}

bool is_open(const Pair& pair) {
  return pair.where != nullptr && ::pthread_equal(pair.thread, ::pthread_self()) != 0;
}

}  // namespace
SWITCHYARD_RENEW(kState, g_state);

Pair* begin(ncclComm_t comm, void** where) {
  if (where == nullptr) return nullptr;
  auto* pair = static_cast<Pair*>(::calloc(1, sizeof(Pair)));
  if (pair == nullptr) return nullptr;
  pair->comm = comm;
  pair->where = where;
  pair->thread = ::pthread_self();
  t_nccl.registers = true;
  const Locked locked(g_state.lock);
  pair->next = g_state.first;
  g_state.first = pair;
  return pair;
}

void** twins_handle(Pair* pair) { return &pair->twins; }

void settle(ncclResult_t result) {
  if (!t_nccl.registers) return;
  t_nccl.registers = false;
  const Locked locked(g_state.lock);
  if (result != kNcclSuccess) return erase(is_open);
  for (Pair* pair = g_state.first; pair != nullptr; pair = pair->next) {
    if (!is_open(*pair)) continue;
    pair->handle = *pair->where;
    pair->where = nullptr;
  }
}

void* take(ncclComm_t comm, void* handle) {
  const Locked locked(g_state.lock);
  void* found = nullptr;
  erase([&](const Pair& pair) {
    if (found != nullptr || pair.where != nullptr || pair.comm != comm || pair.handle != handle) {
      return false;
    }
    found = pair.twins;
    return true;
  });
  return found;
}

void drop(ncclComm_t comm) {
  const Locked locked(g_state.lock);
  erase([&](const Pair& pair) { return pair.comm == comm; });
}

}  // namespace switchyard::shim::nccl::registrations
