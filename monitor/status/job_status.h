// What a job does, and why it does not run: the one place that says so.
//
// Concept. snapshot.h copies what the registry and the pages say. Its meaning is decided here, and
// `ps`, JSON, the sums of usage.h, stalls and the log render it. The first row that holds is told:
//
//     seen of the job                                     state      reason         counts as
//     a person has paused it                              paused     pause          pause
//     a process can't act, and nobody works without it    stopped    signal, ...    -
//     it goes to another GPU and still works              moving     move prepares  -
//     it goes to another GPU                              moving     move           swap
//     its memory is out, wanted in, and has no room       waiting    room           memory
//     its memory is out                                   swapped    swap-out, ...  swap
//     its memory is on its way out                        moving     swap-out, ...  swap
//     its memory is on its way in                         moving     returns        swap
//     an allocation waits                                 waiting    allocation     memory
//     its ranks are being stopped at a cut                held       cut            cut
//     they are stopped for another's turn, gates open     held       turn ends      cut
//
//     seen on one GPU, of any process                     state      reason         counts as
//     a gate holds it for a job that guards itself        held       guard          guard
//     a gate holds it, for its --limit is used up         held       limit          limit
//     a gate holds it in another's turn                   waiting    turn           turn
//     it has work, or brought some of late                running    -              -
//     it has no context, and never had work               idle       no CUDA        -
//     none of these                                       idle       -              -
//
//     no process has joined, an old library was refused   unmanaged  old library    -
//
// A gate holds a process while threads sleep at it, or work is queued behind it. "Counts as" is the
// key of waits_seconds. On a GPU that the job never used, the first table does not count. Of
// several GPUs a job has the state of one where it runs; else the first row of any of them.
//
// Codes are stored and sent: they are appended, never changed.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/policy/stalls.h"
#include "monitor/residency/residency_state.h"

namespace switchyard::monitor::status {

enum class State : std::uint8_t {
  kUnknown = 0,  // the monitor stood still, and knows nothing of that time
  kRunning = 1,
  kIdle = 2,
  kHeld = 3,
  kWaiting = 4,
  kPaused = 5,
  kSwapped = 6,
  kMoving = 7,
  kStopped = 8,
  kUnmanaged = 9,
};
const char* key_of(State state);  // for JSON and `ps`

enum class Reason : std::uint8_t {
  kNone = 0,
  kPause = 1,
  kSignal = 2,
  kDebugger = 3,
  kCoreDump = 4,
  kFrozen = 5,
  kDisk = 6,
  kMovePrepares = 7,
  kMove = 8,
  kRoom = 9,
  kSwapOut = 10,      // a person wants it
  kIdleRelease = 11,  // it did not work
  kYield = 12,        // another job needs the memory
  kReturns = 13,
  kAllocation = 14,
  kCut = 15,
  kTurnEnds = 16,
  kGuard = 17,
  kLimit = 18,
  kTurn = 19,
  kNoCuda = 20,
  kOldLibrary = 21,
};
const char* key_of(Reason reason);  // for JSON; null: kNone

struct Code {
  State state = State::kUnknown;
  Reason reason = Reason::kNone;
  auto operator<=>(const Code&) const = default;  // NOLINT(modernize-use-nullptr): a zero in it
};
// Under which key of waits_seconds it counts; kNone: under none, for we hold nothing.
stalls::Hold hold_of(Code code);

// The job or the person that causes it. Neither is set where there is none, or it is not known.
struct By {
  JobKey job = 0;
  std::string name = {};          // of the job
  std::optional<uid_t> uid = {};  // of its owner, or of the person
  pid_t pid = 0;                  // the process by which the person asked
  bool known() const { return job != 0 || uid.has_value(); }
  bool operator==(const By&) const = default;
};

struct Status {
  Code code = {};
  By by = {};
  Time since{0};
  // What its text tells besides.
  std::uint64_t bytes = 0;               // that it waits for
  double limit = 0;                      // in force: what the job may have of the GPU
  pid_t pid = 0;                         // that can't act, where others can
  std::uint32_t layout = 0;              // of the old library's page
  unsigned goal = 0;                     // the index of the GPU that it goes to,
  bool back = false;                     // or back to
  std::vector<unsigned> places = {};     // indices of the GPUs that are meant; empty: all of it
  std::vector<unsigned> parked_on = {};  // likewise, of those that have its memory
  ResidencyState where = ResidencyState::kResident;
  bool leaves = false;  // what follows a cut: its memory leaves; else a pause begins
};
// "limit", "memory of serve", "GPU 1: swap-out": as `state_reason` has it; empty: there is none.
std::string reason_text(const Status& status);
// "held: limit 30%", "waiting: 8.1 GiB of serve": the whole of it. `person`: by, if it is one.
std::string text_of(const Status& status, const std::string& person);

struct JobStatus {
  Status job;
  struct OnGpu {
    std::size_t gpu = 0;
    Status status;
  };
  std::vector<OnGpu> gpus = {};  // that it sees, in their order
  struct OfProcess {
    ClientId client = 0;
    stalls::Hold hold = stalls::Hold::kNone;
  };
  std::vector<OfProcess> processes = {};  // what holds each, if we do
};

// --- what it follows from ---

// One process on one GPU.
struct SeenLane {
  std::size_t gpu = 0;
  bool used = false;          // it has a context there, or had one
  bool works = false;         // the policy counts it as active, or threads of it are held
  std::uint32_t held_by = 0;  // abi::kClosed* bits of a gate that holds it
  Time asks_since{0};         // an allocation of it waits; 0: none does
  std::uint64_t asks_bytes = 0;
  double share = 0;  // of the GPU, as far as it is known
};

struct SeenProcess {
  ClientId client = 0;
  pid_t pid = 0;
  Standstill stands = Standstill::kNone;
  Time stands_since{0};
  std::vector<SeenLane> lanes = {};
};

struct SeenJob {
  JobKey key = 0;
  std::string name = {};
  uid_t uid = 0;
  std::vector<std::size_t> gpus = {};  // that it sees
  bool paused = false;
  Time paused_since{0};
  std::optional<Peer> paused_by = {};
  bool stands = false;  // a process can't act, and the job does not work without it
  bool moves = false;   // to another GPU,
  bool prepares = false;
  bool back = false;
  std::size_t goal = 0;
  Time moves_since{0};
  ResidencyState where = ResidencyState::kResident;
  residency::Reasons wanted_out = {};
  std::optional<Peer> out_by = {};  // a person who wanted it
  Time memory_since{0};             // that it waits for room, or moves; 0: not known
  std::uint64_t away_bytes = 0;
  std::vector<std::size_t> places = {};  // GPUs that `where` is about; empty: all of them
  std::vector<std::size_t> parked_on = {};
  GangHold::Stage stage = GangHold::Stage::kNone;
  bool leaves_at_cut = false;
  Time stage_since{0};
  JobKey waits_for = 0;  // a job that gives it room
  JobKey guarded = 0;    // a job for whose sake it is held
  double limit = 0;
  std::uint32_t old_layout = 0;  // of a library that was refused; 0: none was
  std::vector<SeenProcess> processes = {};
};

struct Snapshot {
  Time now{0};
  std::vector<unsigned> indices;  // of the GPUs, as people number them
  std::map<JobKey, SeenJob> jobs;
};

// What each job does. `since` is when that began, or `now`.
std::map<JobKey, JobStatus> statuses_of(const Snapshot& snapshot);
// A state that goes on keeps the time at which it began.
void keep_since(const JobStatus& before, JobStatus& after);
// What holds one of the job's processes, if we do.
stalls::Hold hold_of(const SeenJob& job, const SeenProcess& process);

}  // namespace switchyard::monitor::status
