// The registry: which jobs there are, whose they are, and which client processes belong to them.
//
// Concept. A job is made by `create` (switchyard run), or by the first client that names an unknown
// id. That is also how a restarted monitor finds its jobs again. It lives while its creator lives
// or a client is attached. Its id and its name are unique among the living; it belongs to one user,
// and only that user's processes may join it. Ids are no secret, so the first to say one after a
// restart has no right to it: an id is looked up per user.
//
// A module that remembers something of a job or a client has it here, if others read it. It alone
// writes that (written_by.h).
//
// Threading: a plain value.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "monitor/core/account.h"
#include "monitor/core/client_page.h"
#include "monitor/core/events.h"
#include "monitor/core/job_gpus.h"
#include "monitor/core/job_memory.h"
#include "monitor/core/job_settings.h"
#include "monitor/core/standing.h"
#include "monitor/core/work.h"
#include "monitor/core/written_by.h"
#include "monitor/platform/owner.h"
#include "monitor/platform/place.h"
#include "monitor/platform/processes.h"
#include "monitor/platform/time.h"
#include "monitor/platform/users.h"
#include "monitor/policy/cut.h"
#include "monitor/policy/migration.h"
#include "monitor/policy/parking.h"
#include "monitor/policy/stalls.h"
#include "switchyard/wire.h"

namespace switchyard::monitor {

// The writers: classes, and structs in the .cpp of modules that are made of functions.
class GangPace;
class Guards;
class MemoryBroker;
class Migrations;
class Monitor;
class Oversubscription;
class Residency;
class Scheduler;
class Weights;
struct Gangs;
struct IdleRelease;
struct IslandFailures;
struct IslandMembers;
struct Pausing;
struct Standing;

// Whether a person holds a job back (pausing.h).
struct Pause {
  bool on = false;
  Time until{0};  // 0: until it is resumed
  Time since{0};
  bool at_cut = false;   // no rank of it waits for another (gangs.h)
  bool decided = false;  // by a person who asked this monitor, not by what a client remembers
  std::optional<Peer> by = {};  // that person, if it is known
  std::uint64_t progress = 0;   // of its clients, and when that was seen to move
  Time moved_at{0};
};

// Its place among those who take turns, as of the last look (oversubscription.h).
struct Turn {
  bool may_return = true;         // nobody is before it
  std::set<std::size_t> arrives;  // GPUs where it may come as room comes
  JobKey waits_for = 0;           // the job that gives it room; 0: none
};

// Whether its processes wait for each other on their GPUs, and can be stopped at a cut (gangs.h).
enum class GangKind : std::uint8_t { kNone, kUnseen, kRanks };

// A hold of a job whose ranks wait for each other (gangs.h).
struct GangHold {
  enum class Stage : std::uint8_t {
    kNone,
    kGathering,
    kDraining,
    kClosing,
    kLeaving,
    kTurnEnds,
    kTurnEnded
  };
  Stage stage = Stage::kNone;
  Time since{0};      // of the stage
  Time looked_at{0};  // when it was looked at last
  cut::State cut;
  std::uint32_t number = 0;  // of the cut, as the pages have it
  bool pauses = false;       // what follows: a pause until `until`, and its memory leaves
  bool leaves = false;
  residency::Reasons reasons;  // for which it leaves
  Time until{0};
  std::optional<Peer> by;  // the person who asked for it
  std::string failure;     // why the last one that a person asked for failed; empty: it did not
  int code = 0;            // for people (status.h)
  // Ranks are awaited, so its gates must be open.
  bool gathers() const { return stage == Stage::kGathering || stage == Stage::kDraining; }
};

// Its way to another GPU (migrations.h).
struct Migration {
  migration::State state;
  std::size_t from = 0, to = 0;  // GPUs
  std::string failure;           // why the last one failed; empty: it did not
  int code = 0;                  // for people (status.h)
  std::optional<Peer> by;        // the person who asked for it
  std::uint64_t most = 0;        // bytes of it that were there at once since its contexts are
  std::size_t goal() const { return state.back ? from : to; }
  std::size_t start() const { return state.back ? to : from; }
};

// The restraint on it for the sake of jobs that guard themselves (adaptation/guards.h).
struct Restraint {
  double most_weight = 0;    // 0: no bound
  double ceiling = 0;        // of the GPU's time; 0: none
  bool copies = false;       // the slices of its copies are as short as may be
  bool held = false;         // its gates are closed
  std::set<JobKey> guarded;  // for the sake of these
  bool operator==(const Restraint&) const = default;
};

// How its island failed last (islands/failures.h).
struct IslandFailure {
  Time at{0};                         // 0: it did not
  std::uint32_t error = 0;            // CUresult of the fault; 0: the server ended
  std::vector<std::string> suspects;  // members that were at work then
};

struct Job {
  JobKey key = 0;
  std::string id;       // SWITCHYARD_JOB
  std::string said_id;  // under which its processes come, where another user's job has that id
  std::string name;     // how people address it
  std::string command;  // as `run` said it; empty: nobody did
  uid_t uid = 0;
  std::string container;      // of its owner (owner.h)
  std::vector<gid_t> groups;  // the same
  JobCard card{};             // as text, `set` included: what its pages show
  // The same as whoever made it wrote it; none: this monitor found the job again.
  std::optional<JobCard> asked;
  // A process that comes for the first time made it, and nobody has changed it since.
  bool made_anew = false;
  WrittenBy<bool, Monitor> told_other_settings;  // that a process of it asks for others
  Knobs knobs;
  // Of each GPU, for a job without a quota: what root allows its user. Not reserved.
  std::optional<std::uint64_t> ceiling_bytes;
  std::string ceiling_rule;          // that says so, with its place
  double most_weight = kMostWeight;  // that root allows its user, where it is found by itself
  Time since{0};
  WrittenBy<Pause, Pausing> pause;
  WrittenBy<GangHold, Gangs> gang;
  WrittenBy<GangKind, Gangs> gang_kind;  // as of the last tick
  // Its ranks are to stop, for it is another's turn (policy/grants.h).
  WrittenBy<bool, Scheduler> turn_ends;
  WrittenBy<Migration, Migrations> migration;
  JobMemory memory;  // where it is, and why it is wanted off the device
  Tap tap;           // of its pauses and moves
  WrittenBy<Turn, Oversubscription> turn;
  WrittenBy<Restraint, Guards> restraint;
  WrittenBy<bool, Standing> stands;  // its processes can't act, or a rank can't (standing.h)
  // Around it: a gang's phases may be opposite (gang_pace.h).
  WrittenBy<bool, GangPace> short_slices;
  WrittenBy<double, Weights> found_weight;  // of one with --share auto; 0: nothing is known yet
  // Of its clients, as of the last look (idle_release.h).
  WrittenBy<std::uint64_t, IdleRelease> work_seen;
  pid_t creator = 0;                    // 0: none that keeps it alive
  std::shared_ptr<void> creator_watch;  // tells when the creator is dead
  std::optional<int> wait_status = {};  // of the creator, once it is dead, where that is known
  JobGpus gpus;
  Place place;  // by the cgroups of its processes; of Slurm else by its id
  // The key of its island (islands/members.h); 0: it is in none.
  WrittenBy<std::uint64_t, IslandMembers> island;
  WrittenBy<IslandFailure, IslandFailures> island_failure;
  std::set<ClientId> clients;  // attached
};

// Memory that a client was told to wait for (memory_broker.h).
struct MemoryWait {
  Time since{0};  // 0: it waits for none
  Time last_asked{0};
  std::uint64_t lacks_bytes = 0;  // what was missing then
  bool wants_turn = false;        // others' leaving would give it to it
};

// Notes about a client's swappable memory (residency.h).
struct ResidencyNotes {
  Time told_to_leave{0};  // or was away last; 0: it may stay
  Time drains_since{0};   // its accepted work is awaited, and nothing has left since
  Time numbered_at{0};    // when its order got its number
  // The host memory that it can have pinned: it was permitted that much since it last had less.
  // What it says beyond that takes nothing from others.
  std::uint64_t most_pinned = 0;
  bool carried = false;  // its words may be from under another monitor
};

struct Client {
  // Of one GPU that the monitor governs.
  struct Lane {
    std::size_t gpu = 0;
    OverheadMeter overhead;
    WrittenBy<MemoryWait, MemoryBroker> wait;
    Time refreshed_at{0};  // when it last said that its contexts changed
    // When it said what it had under another monitor; 0: that is checked.
    WrittenBy<Time, MemoryBroker> claimed_at;
    double load = -1;  // NVML's last sample; -1: none
    LaneReport last;   // as of the last look
    GateReport gate;   // the same
    GateOrder order;   // what its gate was told last
    // Its swappable memory (residency.h).
    ResidencyReport residency;       // as of the last look
    ResidencyOrder residency_order;  // what it was told last
    WrittenBy<ResidencyNotes, Residency> noted;
    std::uint64_t kept_bytes = 0;  // that it may keep resident while it yields room
    policy::Parker parker;         // what of its memory is parked on another GPU (parking.h)
    // The request that its host pool be unpinned; 0: none.
    WrittenBy<std::uint32_t, Migrations> unpin;
    const char* not_parked = nullptr;  // why not all of it was, the last time it left
    Time numbered_since{0};            // since when the client numbers its work; 0: it does not
    bool asked_to_wake = false;
    bool active = false;
    // For the counters of statistics/counters.h: openings of its gate, and the last refusal.
    std::uint64_t gate_opened = 0;
    std::uint32_t refused_verdict = wire::kGranted;  // kGranted: the monitor refused nothing
    double share_asked = 0;
    double share_got = -1;  // the policy's estimate; -1: none
    // Sums since it joined: what it had of the GPU, and what kept it from more (statistics/usage.h).
    struct Had {
      bool known = false;     // by the policy, as of the last look; else there is NVML's load alone
      double gpu_ns = 0;      // of the GPU's time
      double divided_ns = 0;  // of that, where slices divided the time: allotted, not measured
      double slices_ns = 0;   // of others' slices, while it had work
      double guard_ns = 0, limit_ns = 0, turn_ns = 0;  // its gate was closed, and somebody came
      Time divided_at{0};
      Time held_at{0};  // up to when the three are counted; 0: from the next look on
      // Its gate has held it like that since then.
      void count(stalls::Hold hold, Time now) {
        const Time since = std::exchange(held_at, now);
        const double ns = since != Time{0} ? counted_ns(now - since) : 0;
        if (hold == stalls::Hold::kGuard) guard_ns += ns;
        if (hold == stalls::Hold::kLimit) limit_ns += ns;
        if (hold == stalls::Hold::kTurn) turn_ns += ns;
      }
    } had;
  };

  ClientId id = 0;
  JobKey job = 0;
  Peer peer;
  std::string container;  // its namespaces (processes.h)
  std::string process;
  bool observer = false;
  bool watched = true;          // somebody will tell when the process is dead
  standing::Known standing;     // whether it can act
  bool other_settings = false;  // its environment asks for others than the job was made with
  bool failed = false;          // with its island: its contexts are lost
  // It was told to exchange these two GPUs, and has not said on which of them it is.
  std::optional<std::pair<std::size_t, std::size_t>> exchanges;
  std::unique_ptr<ClientPage> page;
  std::map<unsigned, Lane> lanes;  // by lane of the page; lanes of other GPUs have no entry
};

class Registry {
 public:
  // `random` makes the ids of jobs and the numbers of hand-overs, which nobody shall guess; a test
  // may pass a counter. `users` bounds the jobs of each, and must live as long.
  Registry(std::function<std::uint64_t()> random, const Users& users);

  std::uint64_t random() { return random_(); }
  // The place to which taps tell: of clients, and of jobs that are made from now on.
  void tells(Sink& sink) { tap_ = Tap(sink); }
  const Tap& tap() const { return tap_; }
  Job* find(JobKey key);
  Job* find_id(const std::string& id);
  // The job that processes of an owner mean by an id: anybody may say one, and it names only jobs of
  // the same user.
  Job* find_id_of(const std::string& id, const Owner& owner);
  // By name or id.
  Job* find_target(const std::string& target);
  const std::map<JobKey, Job>& jobs() const { return jobs_; }
  std::map<JobKey, Job>& jobs() { return jobs_; }

  // Makes a job with the id and the name of the card, or with fresh ones where these are empty. The
  // id is fresh, too, where another user's job has it. Nullptr, with a reason, when the user has a
  // job of that id or too many jobs, or the name is in use.
  Job* make(const JobCard& card, const Knobs& knobs, const Owner& owner, Time now,
            std::string& why);
  // A name like `wanted` that nobody has.
  std::string free_name(const std::string& wanted) const;
  // Forgets a job. pre: it has no client.
  void drop(JobKey key) { jobs_.erase(key); }

  Client& add(std::unique_ptr<Client> client);
  Client* client(ClientId id);
  std::map<ClientId, std::unique_ptr<Client>>& clients() { return clients_; }
  const std::map<ClientId, std::unique_ptr<Client>>& clients() const { return clients_; }
  void remove(ClientId id);
  // Begins a tick: its work, and the part of what all of a user's clients may claim together.
  void next_tick();
  // How many clients a user has (users.h).
  std::size_t clients_of(uid_t account) const;

  Work& work() const { return work_; }
  // Whether the user has something left of its budget for this tick. Root, and the user who runs the
  // monitor, are not bounded.
  bool may_work(uid_t account) const {
    return !users_.bounded(account) || work_.spent(account) < Work::kMostOfUser;
  }

 private:
  std::size_t jobs_of(uid_t account) const;
  void bound(const Client& client) const;

  std::function<std::uint64_t()> random_;
  const Users& users_;
  Tap tap_;
  JobKey next_job_ = 1;
  ClientId next_client_ = 1;
  std::map<JobKey, Job> jobs_;
  std::map<ClientId, std::unique_ptr<Client>> clients_;
  std::map<uid_t, std::size_t> clients_of_;
  mutable Work work_;  // to look is work, too
};

inline uid_t account_of(const Job& job) { return account_of(job.uid, job.container); }

// What it counts among the jobs of its class.
inline double weight_of(const Job& job) {
  const double asked = job.knobs.share.weight;
  if (!job.knobs.share.automatic) return asked;
  return std::min(*job.found_weight > 0 ? *job.found_weight : asked, job.most_weight);
}

inline Owner owner_of(const Job& job) {
  Owner out{job.uid, job.container};
  out.groups = job.groups;
  return out;
}

}  // namespace switchyard::monitor
