// A thread of the application's may be cancelled at most of the C library's calls that wait. There
// is no unwinding here, so what it holds of ours would be held for ever.
//
// Threading: RAII on the calling thread. The cancellation comes at the thread's next point after.
#pragma once

#include <pthread.h>

#include "shim/no_copy.h"

namespace switchyard::shim {

class NoCancel : NoCopy {
 public:
  NoCancel() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { ::pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace switchyard::shim
