// What the checkpoint's neighbours do for it.
#include "shim/checkpoint/neighbours.h"
#include "shim/client/client.h"
#include "shim/slices/groups.h"

namespace switchyard::shim::neighbours {

void contexts_left(unsigned) { groups::lose_all(); }

void contexts_come(unsigned lane) { groups::come_back(static_cast<int>(lane)); }

void contexts_came(unsigned, bool all) {
  groups::are_back();
  if (!all) groups::lose_all();
}

void gpus_exchanged(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]) {
  exchange_gpus(one, other);
}

}  // namespace switchyard::shim::neighbours
