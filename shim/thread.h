// Threads of ours in somebody else's process.
//
// Concept. The application's signals are the application's: none is ever delivered to our thread.
// Nobody joins it: it ends with the process.
//
// Threading: any thread.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace switchyard::shim {

// As large as the stack of a program's first thread. The driver compiles a kernel of ours on one,
// and the C library takes the program's static thread-local data out of each. Untouched pages cost
// nothing.
inline constexpr std::size_t kStack = 8u << 20;

// Starts `run(argument)`. False: the system refused.
inline bool start_thread(void* (*run)(void*), void* argument = nullptr) {
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  ::pthread_attr_setstacksize(&attributes, kStack);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = ::pthread_create(&thread, &attributes, run, argument);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  return error == 0;
}

}  // namespace switchyard::shim
