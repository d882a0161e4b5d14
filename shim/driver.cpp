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

std::atomic<void*> g_handle{nullptr};
pthread_mutex_t g_once = PTHREAD_MUTEX_INITIALIZER;

void* find_library(bool load) {
  void* handle = g_handle.load(std::memory_order_acquire);
  if (handle != nullptr) return handle;
  // By soname, so that a copy opened by an absolute path is found too.
  handle = ::dlopen(kSoname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr && load) handle = ::dlopen(kSoname, RTLD_LAZY);
  // Keep the reference: our table holds addresses of this library until the process ends.
  if (handle != nullptr) g_handle.store(handle, std::memory_order_release);
  return handle;
}

template <typename Function>
void take(Dlsym find, void* handle, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(find(handle, name));
}

}  // namespace

bool driver_loaded() { return find_library(false) != nullptr; }

void* driver_handle() { return find_library(false); }

bool resolve(bool load) {
  if (resolved()) return true;
  // dlopen runs constructors, which may call us again: never under our lock.
  void* handle = find_library(load);
  Dlsym find = real_dlsym();
  if (handle == nullptr || find == nullptr) return false;
  ::pthread_mutex_lock(&g_once);
  if (!g_resolved.load(std::memory_order_relaxed)) {
#define CUDA_CALL(name, rule) take(find, handle, #name, g_driver.name);
#define DRIVER_CALL(name) take(find, handle, #name, g_driver.name);
#include "filtered/calls.def"
#include "filtered/driver.def"
#undef CUDA_CALL
#undef DRIVER_CALL
    index_table();
    g_resolved.store(true, std::memory_order_release);
  }
  ::pthread_mutex_unlock(&g_once);
  return true;
}

}  // namespace switchyard::shim
