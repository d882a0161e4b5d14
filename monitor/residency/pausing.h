// What a person wants of a job: a pause, or its memory off the device and on it.
//
// Concept. A person holds a job back, with all its processes on all its GPUs. A pause is a property
// of the job: a process that joins it while it is paused is held, too. The policy closes the gates
// of a paused job's clients. This file says when a pause begins and ends, and how much is known
// about earlier work in the GPU's queue. A client remembers its pause in its page. So a monitor
// that is started anew finds it again, unless a person has told that monitor otherwise.
//
// Threading: one thread.
#pragma once

#include "monitor/core/registry.h"
#include "switchyard/wire.h"

namespace switchyard::monitor {

// The part that is wanted off the device meanwhile (residency.h).
enum class Releases : std::uint8_t { kNothing, kMemory, kContextsToo };
struct PauseWish {
  Time until{0};  // 0: until somebody resumes it
  Releases releases = Releases::kNothing;
  bool at_cut = false;          // its ranks were stopped together (gangs.h)
  std::optional<Peer> by = {};  // the person who asks
};
// A job that is paused already keeps the time of its pause.
void pause(Job& job, const PauseWish& wish, Time now);
// It ends at once, wherever memory is: the library holds each process until its own is back. One
// whose memory is there may be awaited by another that is still leaving: a collective of that one
// stands on its GPU.
// `by`: the person who asks for it; none: its time is over.
void resume(Job& job, const std::optional<Peer>& by, Time now);
// Of a swappable job. It is wanted in against all reasons to be out.
void want_out(Job& job, const std::optional<Peer>& by, Time now);
void want_in(Job& job, const std::optional<Peer>& by, Time now);
// The pause of a client that was with another monitor.
void restore_pause(Job& job, const wire::Hello& hello, Time now);
// Ends the pauses whose time is over. True: there was one.
bool end_pauses(Registry& registry, Time now);
// When the next one is; 0: none has a time.
Time next_pause_end(const Registry& registry);

// Whether nothing of a paused job runs on the GPU any more, but for a kernel or graph that takes
// longer than 50 ms. Known only of clients that numbered their work since well before the pause.
// Work queued without a number can't be seen. Arming at the pause comes too late: with the gate
// shut nothing follows that could carry a number. So of a job that was alone it stays unknown. Work
// that is held on the GPU keeps its number open, so it is progress that stands still which tells.
// Ask again every few milliseconds.
enum class Drained { kNo, kYes, kUnknown };
Drained drained(Registry& registry, Job& job, Time now);

}  // namespace switchyard::monitor
