// The one lock guard of the library: pthread, because there is no C++ runtime here.
//
// Threading: RAII on the calling thread. A forked child gets every mutex anew (reset.h).
#pragma once

#include <pthread.h>

#include "shim/no_copy.h"

namespace switchyard::shim {

class Locked : NoCopy {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { ::pthread_mutex_lock(&mutex_); }
  ~Locked() { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace switchyard::shim
