// What one mover does (mover.h): memory leaves, comes back, in parts or all, and what comes
// between.
//
// Concept. Each is one step from what the monitor's word asks for; which, look() decides. A step
// that fails leaves a state that can be gone on from, says why, and rests a while.
//
// Threading: the mover's thread.
#pragma once

#include <cstdint>

#include "shim/swap/current.h"
#include "shim/swap/pipeline.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap::mover {

// What it remembers between two looks.
class Moves {
 public:
  // Does what is due. In how many nanoseconds it should look again, unless it is poked; 0: at once.
  std::uint64_t look();
  // After each look: no context is ours.
  void pause() { current_.leave(); }

 private:
  // `error`: why it had to.
  void come_back(std::uint32_t error = abi::kSwapFine);
  // Work is held, and what the limit permits comes already.
  void come_in_part();
  // Two that lack room, each with a part of its memory there, would wait for each other for ever
  // once no monitor puts them in order. One day only one of them goes, and the other has its room.
  void make_way();
  // Nothing can bring it back now, and nothing can work on it: whoever is held shall have the
  // driver's own error instead.
  void strand(std::uint32_t error, CUresult result);
  void leave(std::uint64_t limit);
  // What will leave soon is offered while work goes on. Whether it is.
  bool prepare_to_leave();
  // Whether what another is about to hand over is in its place.
  bool stands_ready();
  // As a thread wants it (wanted.h).
  void make_whole();
  // Before anything is wanted of work that goes on.
  CUresult ready_for_whole(std::uint64_t bytes);
  // Nobody new is admitted.
  bool held_back();
  // pre: held_back().
  bool quiet();
  // Work is held and done. kLate: not in time.
  CUresult hold();
  CUresult finish_work();
  // Not moved after all: work goes on.
  void stay(std::uint32_t error, CUresult result);
  void rest(std::uint32_t phase, std::uint32_t error, CUresult result);
  void succeeded();
  void count_in(const Moved& moved, std::uint64_t begun) const;
  void note(const char* way, const Moved& moved, std::uint64_t begun) const;

  // The host pool (moves_pool.cpp).
  // `kept`: what the pipeline gives up where it finds no room.
  bool find_host_room(std::uint64_t bytes, std::uint64_t kept);
  // The next move shall find its room.
  bool grow_pool();
  // Others need what is pinned here beyond the limit. As the driver waits for all work of the
  // process before it lets go of host memory, work is held as for a move.
  bool shrink_pool();

  unsigned lane_ = 0;
  Current current_;
  std::uint64_t rest_ns_ = 0;    // of the last failure
  std::uint64_t next_ns_ = 0;    // not before
  std::uint64_t shrink_ns_ = 0;  // not before
  std::uint64_t spare_ = 0;  // host memory beyond the sum of all chunks, because pieces don't fit
};

// Whether memory was left away because no context was there to bring it back by. Forgets it.
bool was_stranded();

}  // namespace switchyard::shim::swap::mover
