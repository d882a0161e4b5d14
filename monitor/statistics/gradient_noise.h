// The gradient noise scale of each job that asks for it: norms of pages, read into the rule
// (policy/gradient_noise.h).
//
// Concept. Each communicator of several ranks is looked at by itself. The one whose sums repeat in
// each step is that of the gradient. Where several are, nobody knows which of them holds gradients:
// tensor parallelism sums activations by the same calls.
//
// The claims of a user's processes cost no more than these bounds. A group of them has a part of
// the room that its user's groups may have together.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/policy/gradient_noise.h"

namespace switchyard::monitor {

class GradientNoise {
 public:
  // Further ranks are not followed.
  static constexpr std::uint32_t kMostRanks = 4096;
  static constexpr std::size_t kMostGroupsOfUser = 1024;
  static constexpr std::size_t kMostPendingOfUser = 32 * noise::Ranks::kMostPending;
  static constexpr std::size_t kMostEventsOfUser = 16 * iterations::kMostEvents;
  static constexpr std::size_t kMostReadOfUser = 64 * abi::kNorms;  // in one look

  enum class State {
    kMeasured,
    kMeasuring,     // not enough steps yet
    kUnclear,       // the gradient is not told apart from its noise (yet)
    kOneRank,       // no communicator of several ranks
    kNoGradient,    // nothing was launched that may be a gradient
    kNotMeasured,   // for the reasons that are told besides
    kRanksMissing,  // some rank tells nothing
    kSeveral,       // several communicators sum what may be gradients
  };
  struct Report {
    State state = State::kOneRank;
    std::uint32_t unmeasured = 0;    // why some were not measured, of all its processes (norms.h)
    std::uint64_t communicator = 0;  // 0: none was chosen
    std::size_t ranks = 0;
    std::size_t telling = 0;
    std::optional<noise::Result> result;
  };

  void tick(const Registry& registry);
  Report of(const Registry& registry, const Job& job) const;

 private:
  struct Group {
    explicit Group(std::uint32_t size) : ranks(size), estimator(size) {}
    noise::Ranks ranks;
    noise::Estimator estimator;
    bool lives = false;       // as of this tick
    std::size_t tellers = 0;  // processes that are ranks of it, each as often as it is one
  };
  struct Place {
    CommunicatorReport said;
    Group* group = nullptr;
  };
  // A process, as of this tick.
  struct Look {
    const Client* client = nullptr;
    std::vector<Place> places;
  };
  using Key = std::pair<JobKey, std::uint64_t>;  // and the communicator's id

  Group* group_of(const Client& client, const CommunicatorReport& said);
  void find_groups(Look& look);
  void read(const Registry& registry, const Look& look);
  const Group* choose(const Job& job, Report& report) const;

  std::map<Key, Group> groups_;
  std::map<uid_t, std::size_t> groups_of_;  // of each user, as of this tick
  std::map<ClientId, RecordCursor> cursors_;
};

const char* key_of(GradientNoise::State state);

}  // namespace switchyard::monitor
