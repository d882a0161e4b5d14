// The mover's context: what it copies by.
//
// Concept. To the driver, memory that moves belongs to no context, so any of the GPU's will do:
// the primary context if it is active, else what the process made. Of those only the living are
// known (memory/owner.h); what an allocation was made in may have ended unseen, as a green context
// does, and to touch it then is undefined.
//
// Threading: the mover's thread alone, while no context can end (mover.h: Standstill).
#pragma once

#include "shim/driver.h"

namespace switchyard::shim::swap {

class MoverContext {
 public:
  // Makes one current to the calling thread, until leave(). False: there is none. May be called
  // again before leave().
  bool enter(unsigned lane);
  void leave();

 private:
  bool retained_ = false;
  CUdevice device_ = 0;
};

}  // namespace switchyard::shim::swap
