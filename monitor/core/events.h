// Events: what happened to a job, as 40 bytes, and the one place to which each writer tells it.
//
// Concept. A thing that changes has one writer, and that writer tells its change through a Tap. The
// looks of the monitor come five times a second, and turns last milliseconds: only a tap sees all.
// A Sink keeps them (history/journal.h). A tap allocates nothing and never waits.
//
//     kind               told by                       pid, uid             value
//     monitor begins     monitor.cpp                   the monitor          -
//     job begins         monitor.cpp                   its first process    -
//     job ends           monitor.cpp                   -                    1 + wait status, or 0
//     state              status/changes.h              who caused it        as in changes.h
//     work               status/changes.h              who caused it        as in changes.h
//     paused             residency/pausing.h           who asked            its end, 0: none
//     resumed            residency/pausing.h           who asked            -
//     leaves             core/job_memory.h             who asked            reasons
//     left               core/job_memory.h             who asked            reasons
//     returns            core/job_memory.h             who asked            -
//     is back            core/job_memory.h             who asked            -
//     move prepares      residency/migrations.h        who asked            1: on the way back
//     move leaves        residency/migrations.h        who asked            1: on the way back
//     move lands         residency/migrations.h        who asked            1: on the way back
//     move arrives       residency/migrations.h        who asked            1: on the way back
//     move ended         residency/migrations.h        who asked            an exit code (status.h)
//     command            control/commands.h            who asked            number of its text
//     command refused    control/commands.h            who asked            number of its text
//     memory refused     charging.cpp                  the process          bytes
//     process refused    transport/session.h           the process          layout of its page
//     gate               scheduling/gate_controller.h  the process          bits, as below
//     slice              scheduling/slice_controller.h the process          microseconds, as below
//     unmanaged begins   accounting/unmanaged.h        the process          bytes of GPU memory
//     unmanaged ends     accounting/unmanaged.h        the process          the same, at most
//     island ended       islands/failures.h            the server           -
//     island fault       islands/failures.h            the member           as in failures.h
//
// "Bits": abi::kClosed* as they are now, and as they were in the upper half. "Microseconds": of
// computing, and of copies in the upper half; 0 is the driver's own. "Who asked" is known of what a
// person's command began. The number of a text is that of history/journal.h. Of refused memory
// `reason` is the verdict (wire.h), and a job has one such event a minute at most.
//
// Kinds and fields are stored: a kind is only ever appended, and each has a text.
//
// Threading: the monitor's one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "monitor/core/account.h"
#include "monitor/platform/processes.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor {

enum class EventKind : std::uint16_t {
  kMonitorBegins = 1,
  kJobBegins = 2,
  kJobEnds = 3,
  kState = 4,
  kWork = 5,
  kPaused = 6,
  kResumed = 7,
  kLeaves = 8,
  kLeft = 9,
  kReturns = 10,
  kIsBack = 11,
  kMovePrepares = 12,
  kMoveLeaves = 13,
  kMoveLands = 14,
  kMoveArrives = 15,
  kMoveEnded = 16,
  kCommand = 17,
  kCommandRefused = 18,
  kMemoryRefused = 19,
  kProcessRefused = 20,
  kGate = 21,
  kSlice = 22,
  kUnmanagedBegins = 23,
  kUnmanagedEnds = 24,
  kIslandEnded = 25,
  kIslandFault = 26,
};
inline constexpr unsigned kEventKinds = 26;
// For JSON; "unknown" for a kind that this version does not have.
const char* key_of(EventKind kind);

// Of what happens with each turn. These are kept apart, so that they push nothing rare out.
constexpr bool is_frequent(EventKind kind) {
  return kind == EventKind::kWork || kind == EventKind::kGate || kind == EventKind::kSlice;
}

struct HistoryEvent {
  static constexpr std::uint32_t kNobody = ~0u;

  std::int64_t at_ns;    // on the monitor's clock (time.h)
  std::uint64_t value;   // by its kind, as the table has it
  std::uint32_t job;     // JobKey of the job that it happened to; 0: to none
  std::uint32_t by_job;  // JobKey of the job that caused it; 0: none did, or it is not known
  std::uint32_t uid;     // the user of `pid`, or the person who caused it; kNobody: not known
  std::int32_t pid;      // the process, as the table has it; 0: none, or not known
  EventKind kind;
  std::uint16_t gpu;  // 1 + the number of the GPU in the monitor; 0: all of the job, or none
  // Of `state` and `work`: status::State and status::Reason before it, and since then; else 0.
  std::uint8_t from_state, from_reason;
  std::uint8_t state, reason;
};
static_assert(sizeof(HistoryEvent) == 40, "events are stored: another size is another format");
static_assert(std::is_trivial_v<HistoryEvent>, "a ring of them is not touched before it is used");

// Of no GPU, no person and no value.
inline HistoryEvent event_of(EventKind kind, JobKey job, Time now) {
  HistoryEvent out{};
  out.kind = kind;
  out.job = static_cast<std::uint32_t>(job);
  out.uid = HistoryEvent::kNobody;
  out.at_ns = now.count();
  return out;
}
inline HistoryEvent event_of(EventKind kind, JobKey job, const std::optional<Peer>& by, Time now) {
  HistoryEvent out = event_of(kind, job, now);
  if (!by) return out;
  out.uid = by->uid;
  out.pid = by->pid;
  return out;
}
inline void set_gpu(HistoryEvent& event, std::size_t gpu) {
  event.gpu = static_cast<std::uint16_t>(gpu + 1);
}

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void take(const HistoryEvent& event) = 0;
};

// The way of one writer to the sink; at first it leads nowhere.
class Tap {
 public:
  Tap() = default;
  explicit Tap(Sink& sink) : sink_(&sink) {}
  void tell(const HistoryEvent& event) const {
    if (sink_ != nullptr) sink_->take(event);
  }

 private:
  Sink* sink_ = nullptr;
};

}  // namespace switchyard::monitor
