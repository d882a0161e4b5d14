// How long the collectives of each process take on the GPU: its timings, read into the rule
// (policy/communication.h).
//
// Concept. Timings are asked for while people ask for statistics, and for a while after that, of
// processes that are in a communicator of several ranks. The memory kept of them, and so the cost
// of a question, is bounded for each user. That is kMostOfUser timings, of which each of its
// processes has a part.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>

#include "monitor/core/registry.h"
#include "monitor/policy/communication.h"

namespace switchyard::monitor {

class Communication {
 public:
  // They are asked for so long after the last question.
  static constexpr Time kTimesFor = std::chrono::seconds(60);
  static constexpr std::size_t kMostOfUser = 16 * communication::kMostTimings;

  // The knowledge of a process, for JSON.
  enum class State : std::uint8_t {
    kUnasked,    // it has no peers, or nobody has asked
    kMeasuring,  // too little is known yet
    kTimed,
    kGraphs,   // its collectives are in graphs, and so not timed one by one
    kRefused,  // by the driver
  };
  struct Process {
    bool asked = false;
    communication::History history;
    communication::Allowance allowance;
    RecordCursor cursor;
    Time clock[abi::kMaxGpus] = {};              // of each lane's GPU, as of its last timing
    std::uint32_t clock_us[abi::kMaxGpus] = {};  // the same as the client said it
  };
  struct Known {
    State state = State::kUnasked;
    communication::Shares shares;
    communication::Meetings meetings;
  };

  // Somebody wants to know.
  void ask(Time now) { asked_at_ = now; }
  void tick(const Registry& registry, Time now);
  // Of each process of the job that has been looked at.
  std::map<ClientId, Known> of(const Registry& registry, const Job& job) const;

 private:
  void look(const Registry& registry, Process& process, const Client& client, Time now) const;

  std::map<ClientId, Process> processes_;
  std::optional<Time> asked_at_;
  std::uint32_t looks_ = 0;
};

const char* key_of(Communication::State state);  // for JSON; null: kUnasked

}  // namespace switchyard::monitor
