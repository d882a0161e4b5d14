// The executor: does what the state machine (state.h) says, and tells the page.
//
// Concept. look() asks what comes next, does it, and goes on with what came of it, until there is
// nothing more to do now. The machine alone decides; here are the driver, the page, the clock, the
// guard (work_guard.h) and the log. Each action leaves the chunks such that the next one can go on.
//
// executor.cpp has the thread of each GPU, with its lock (swap/mover.h), the loop, and all that is
// done when memory leaves. executor_returns.cpp has the way back, executor_consolidates.cpp what a
// thread asks for, executor_pool.cpp the host pool between moves.
//
// Threading: the mover's thread of its GPU, with its lock (at_work); what else takes that lock is
// said.
#pragma once

#include <cstdint>

#include "shim/contexts.h"
#include "shim/driver.h"
#include "shim/swap/residency/pool_shrinking.h"
#include "shim/swap/residency/state.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap::residency {

// Work is not held in time.
inline constexpr CUresult kLate = CUDA_ERROR_NOT_READY;

// How a request to unpin the host pool beside work gets on.
struct Unpinning {
  std::uint32_t request = 0;  // the one that the rest belongs to
  std::uint64_t begun_ns = 0;
  std::uint64_t not_before_ns = 0;  // the next part
  CUdeviceptr below = 0;            // memory below this address is still to be copied; 0: none
  CUdeviceptr unsure = 0;  // its copies below this address are still to be checked; 0: none
  std::uint64_t copied = 0;
  std::uint64_t bytes = 0;
  std::uint64_t held_ns = 0;  // for which nothing was on the GPU
  unsigned parts = 0;
};

class Executor {
 public:
  constexpr explicit Executor(unsigned lane = 0) : lane_(lane) {}

  // Does what is due. In how many nanoseconds it should look again, unless it is poked; 0: at once.
  std::uint64_t look();
  // After each look: no context is ours.
  void pause();
  // A context begins where there was none, perhaps. Called by the thread that makes it, with the
  // mover's lock. Whether something is to be done about it.
  bool context_made();

  MoverState state() const { return now_.state; }

 private:
  MoverView observe();
  MoverStep decide(Input& input);
  // The step's state is taken on: by the guard, by what is offered, and in the page.
  void adopt(const MoverStep& step);
  void report_failure(const MoverStep& step);
  // Ends a step, and answers when to look again.
  std::uint64_t finish(const MoverStep& step);

  // Without trying: so far as is known.
  bool has_host_room(std::uint64_t bytes) const;
  // With as much as is wasted between pieces. `kept`: what the pipeline gives up for it.
  bool find_room(std::uint64_t bytes, std::uint64_t kept) const;
  std::uint64_t kept_now() const;
  MoverEvent find_room_away(const MoverView& seen);
  MoverEvent quiesce(MoverView& seen);
  Input swap_out(const MoverView& seen);
  Moved move_away(const MoverView& seen);
  Moved keep_away(const MoverView& seen) const;
  Input swap_in(const MoverView& seen);
  Input swap_in_part(const MoverView& seen);
  Input move_on(const MoverView& seen);
  Input take_contexts(const MoverView& seen);
  Input bring_contexts(const MoverView& seen);
  Input consolidate(const MoverView& seen);
  void answer();
  void make_way();
  bool stands_ready() const;
  bool prepare_to_leave();
  // Without a hand-over none of this is asked.
  Handoff follow(const MoverView& seen);

  // Work is held and done. kLate: not in time.
  CUresult hold();
  // Before anything is wanted of work that goes on.
  CUresult ready_for_whole(std::uint64_t bytes);
  Input moved(const MoverView& seen, const Moved& moved);
  void count_in(const Moved& moved, std::uint64_t begun) const;
  void note(const char* way, const Moved& moved, std::uint64_t begun) const;

  // The host pool between moves (executor_pool.cpp). When to look again.
  std::uint64_t tend_pool(const MoverStep& step);
  // The next move shall find its room.
  bool grow_pool();
  // Before the contexts leave. Slabs that swap-in does not need are pinned later, between moves.
  void unpin_pool();
  bool pin_pool();
  // The same beside work, before it is held for the move. In how many nanoseconds it goes on.
  std::uint64_t unpin_beside_work(std::uint32_t request, std::uint64_t look_in_ns);
  void begin_unpinning(std::uint32_t request);
  void precopy_until(std::uint64_t end_ns);
  Unpinned prepare_part(std::uint64_t end_ns);
  void end_unpinning(const char* how);
  // Others need what is pinned here beyond the limit. As the driver waits for all work of the
  // process before it lets go of host memory, work is held as for a move.
  bool shrink_pool();

  unsigned lane_;
  Residency now_;
  MoverContext context_;
  CUresult result_ = CUDA_SUCCESS;  // of what failed last
  bool offered_ = false;            // to another job: what leaves soon, or leaves now
  bool offering_ = false;           // the same, until it has left
  bool following_ = false;          // a hand-over in which memory comes, or came until now
  bool asked_ = false;              // somebody waits for `result_`
  std::uint64_t shrink_ns_ = 0;     // not before
  Unpinning unpinning_;
  std::uint64_t park_ns_ = 0;  // likewise: the driver gave no memory on the other GPU
  std::uint64_t spare_ = 0;    // host memory beyond the sum of all chunks, because pieces don't fit
};

// The process's, of one GPU.
Executor& executor(unsigned lane);

}  // namespace switchyard::shim::swap::residency
