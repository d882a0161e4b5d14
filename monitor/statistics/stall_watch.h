// Ranks that others wait for: what pages and /proc say, brought into the rule (policy/stalls.h),
// and what comes of it as people are told it.
//
// Concept. Each job is looked at five times a second. The first report, and its end, go to the log
// as well. That we hold a rank ourselves goes there once it lasts.
//
// A user's clients may claim to be many ranks. So in one look /proc is asked for kMostAsked of
// them, in turns. A ring is searched for an operation once the rank stands still, and the log gets
// kMostLines in a minute.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/platform/log_allowance.h"
#include "monitor/policy/stalls.h"
#include "monitor/status/snapshot.h"

namespace switchyard::monitor {

// The state of a late rank.
enum class Doing : std::uint8_t {
  kUnknown,
  kGone,
  kStopped,    // by a signal, or a debugger
  kLaunching,  // in NCCL
  kHeld,       // by us
  kWaitsForGpu,
  kRuns,
  kSleeps,
  kWaitsForDisk,
};
const char* key_of(Doing doing);  // for JSON

struct ToldStall {
  stalls::Stall stall = {};
  Doing doing = Doing::kUnknown;
  std::optional<stalls::Operation> expected = {};  // what the others launched as this number
  bool lasts = true;                               // so it goes to the log,
  bool logged = false;                             // and is there
};

class StallWatch {
 public:
  static constexpr std::size_t kMostAsked = 64;
  static constexpr unsigned kMostLines = 64;

  void tick(const Registry& registry, const status::Statuses& statuses, Time now);
  const std::vector<ToldStall>& of(const Job& job) const;

 private:
  struct Watched {
    stalls::State state;
    std::vector<ToldStall> told;
  };
  // A process, as of one look.
  struct Look {
    const Client* client = nullptr;
    std::vector<CommunicatorReport> communicators;
  };
  // The knowledge about a process from earlier looks.
  struct Known {
    struct Last {
      std::uint64_t launched = 0;
      bool searched = false;
      stalls::Operation operation;  // as that number, once it was searched for
    };
    std::map<unsigned, Last> last;  // by slot, where the page's own words do not tell
  };
  // Of one user in one look.
  struct User {
    std::size_t asked = 0;  // of its processes that are late
  };

  void watch(const Registry& registry, const Job& job, const status::JobStatus& status,
             Watched& watched, Time now);
  stalls::Process process_of(const Registry& registry, const status::JobStatus& status,
                             const Look& look);
  stalls::Operation last_of(const Registry& registry, const Client& client,
                            const CommunicatorReport& said);
  Doing doing_of(const Registry& registry, const Job& job, const std::vector<Look>& looks,
                 const stalls::Stall& stall, const std::vector<ToldStall>& before);
  static std::optional<stalls::Operation> expected(const Registry& registry,
                                                   const std::vector<Look>& looks,
                                                   const stalls::Stall& stall);
  bool may_log(const Job& job, Time now);
  void log_changes(const Job& job, const std::vector<ToldStall>& before,
                   std::vector<ToldStall>& after, Time now);

  std::map<JobKey, Watched> jobs_;
  std::map<ClientId, Known> known_;
  std::map<uid_t, User> users_;  // as of this look
  LogAllowance lines_{kMostLines};
};

}  // namespace switchyard::monitor
