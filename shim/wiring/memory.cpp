// What memory's neighbours do for it.
#include "shim/ipc/opened.h"
#include "shim/memory/neighbours.h"
#include "shim/swap/calls/allocate.h"

namespace switchyard::shim::neighbours {

void free_owned(int lane, std::uint64_t owner) {
  if (swap::on()) swap::free_owned(lane, owner);
  ipc::close_owned(lane, owner);
}

void reclaim_swappable() { swap::reclaim(); }

}  // namespace switchyard::shim::neighbours
