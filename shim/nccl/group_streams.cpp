#include "shim/nccl/group_streams.h"

#include "shim/log.h"
#include "shim/nccl/thread.h"
#include "shim/swap/memory/stream_event.h"

namespace switchyard::shim::nccl::group_streams {
namespace {

// `one` goes on when `other` has come as far as it has been filled.
bool wait_for(CUstream one, CUstream other) {
  const swap::pooled::Order order{other, false};
  swap::FreePoint place;
  if (!swap::pooled::may_stand_behind() || swap::pooled::place_of(order, place) != CUDA_SUCCESS ||
      !swap::pooled::stand_behind(place, order)) {
    return false;
  }
  const CUresult result = driver().cuStreamWaitEvent(one, place.event, 0);
  driver().cuEventDestroy_v2(place.event);  // it stays until it is done
  return result == CUDA_SUCCESS;
}

bool join(const CUstream* streams, unsigned count) {
  bool joined = true;
  for (unsigned i = 1; i < count; ++i) joined = wait_for(streams[0], streams[i]) && joined;
  for (unsigned i = 1; i < count; ++i) joined = wait_for(streams[i], streams[0]) && joined;
  return joined;
}

void say_apart() {
  static Once said;
  log_once(said, Level::kWarn,
           "a group has a reduce-scatter and other operations of one communicator on several "
           "streams, which could not be made to wait for each other (--urgent-collectives)");
}

// All streams that the group names for the communicator in `slot`, and whether both it and its
// twin are there.
struct Named {
  CUstream streams[kMostGroupStreams];
  unsigned count = 0;
  bool original = false, twin = false;

  Named(const Group& group, int slot) {
    for (unsigned i = 0; i < group.streams; ++i) {
      const GroupStream& each = group.stream[i];
      if (each.slot != slot) continue;
      (each.twin ? twin : original) = true;
      bool known = false;
      for (unsigned j = 0; j < count; ++j) known = known || streams[j] == each.stream;
      if (!known) streams[count++] = each.stream;
    }
  }
};

bool is_first_of_slot(const Group& group, unsigned at) {
  for (unsigned i = 0; i < at; ++i) {
    if (group.stream[i].slot == group.stream[at].slot) return false;
  }
  return true;
}

}  // namespace

void note(int slot, CUstream stream, bool twin) {
  const GroupStream noted{slot, stream, twin};
  Group* const holder = group();
  if (holder == nullptr) return say_apart();
  for (unsigned i = 0; i < holder->streams; ++i) {
    if (holder->stream[i] == noted) return;
  }
  if (holder->streams == kMostGroupStreams) return say_apart();
  holder->stream[holder->streams++] = noted;
}

void join() {
  const Group* const group = t_nccl.group;
  for (unsigned i = 0; group != nullptr && i < group->streams; ++i) {
    if (!is_first_of_slot(*group, i)) continue;
    const Named named(*group, group->stream[i].slot);
    if (!named.original || !named.twin || named.count < 2) continue;
    if (!join(named.streams, named.count)) say_apart();
  }
}

}  // namespace switchyard::shim::nccl::group_streams
