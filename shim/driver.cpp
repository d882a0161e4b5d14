#include "shim/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include "shim/dl.h"
#include "shim/log.h"
#include "shim/table.h"

namespace switchyard::shim {

Driver g_driver;
std::atomic<bool> g_resolved{false};

namespace {

constexpr char kSoname[] = "libcuda.so.1";

struct State {
  std::atomic<void*> handle{nullptr};
  // The C library knows of a fork in the middle: the child, which lacks the thread that fills,
  // begins anew. A mutex would be locked there for ever, and no fork handler is registered that
  // early.
  pthread_once_t filled = PTHREAD_ONCE_INIT;
};
constinit State g_state;

// The driver as this thread found it, for publish().
constinit thread_local const Driver* t_found = nullptr;

void* find_library(bool load) {
  void* handle = g_state.handle.load(std::memory_order_acquire);
  if (handle != nullptr) return handle;
  // By soname, so that a copy opened by an absolute path is found too.
  handle = ::dlopen(kSoname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr && load) handle = ::dlopen(kSoname, RTLD_LAZY);
  // Keep the reference: our table holds addresses of this library until the process ends.
  if (handle != nullptr) g_state.handle.store(handle, std::memory_order_release);
  return handle;
}

template <typename Function>
void take(Dlsym find, void* handle, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(find(handle, name));
}

// pre: the library and its dlsym are found.
void look_up(Driver& found) {
  void* handle = g_state.handle.load(std::memory_order_acquire);
  Dlsym find = real_dlsym();
#define CUDA_CALL(name, rule) take(find, handle, #name, found.name);
#define DRIVER_CALL(name) take(find, handle, #name, found.name);
#include "filtered/calls.def"
#include "filtered/driver.def"
#include "filtered/plain.def"
#undef CUDA_CALL
#undef DRIVER_CALL
}

void publish() {
  g_driver = *t_found;
  index_table();
  g_resolved.store(true, std::memory_order_release);
}

}  // namespace

bool driver_loaded() { return find_library(false) != nullptr; }

void* driver_handle() { return find_library(false); }

bool resolve(bool load) {
  if (resolved()) return true;
  // No lock of ours is held here. dlopen runs constructors, which may call us again. dlsym takes
  // the loader's lock, whose holder may wait for us. So each thread looks up for itself.
  if (find_library(load) == nullptr || real_dlsym() == nullptr) return false;
  Driver found;
  look_up(found);
  t_found = &found;
  ::pthread_once(&g_state.filled, publish);
  t_found = nullptr;
  return true;
}

}  // namespace switchyard::shim
