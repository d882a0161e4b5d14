// What swap's neighbours do for it.
#include "shim/ipc/exported.h"
#include "shim/swap/memory/neighbours.h"

namespace switchyard::shim::neighbours {

void shared_range_ended(const swap::Range& range) { ipc::ended(range); }

}  // namespace switchyard::shim::neighbours
