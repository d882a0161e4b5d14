// The scheduler: for each GPU, a snapshot out of the pages, the policy's plan, and its application.
//
// Concept. look() is the whole loop for one GPU. It copies the pages' words, decides, brings slices
// and gates into the pages, and answers when to look again. It asks no driver and makes a system
// call only for changes. So it is cheap enough for every wake and for ten thousand times a second.
//
//     pages ──► Snapshot ──► policy::decide ──► Plan ──► slicing ──► pages
//                  ▲                              └─────► gating  ──► pages
//                  └── means in force, rules
//
// Where gangs take turns the plans of all GPUs lead to one decision (policy/grants.h), which the
// next look at each of them carries out.
//
// Threading: one thread.
#pragma once

#include <optional>
#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"
#include "monitor/policy/islands.h"
#include "monitor/policy/policy.h"
#include "monitor/scheduling/enforcement.h"
#include "monitor/scheduling/gate_controller.h"
#include "monitor/scheduling/slice_controller.h"

namespace switchyard::monitor {

class Scheduler {
 public:
  // `old_driver`: too_old_for_slices() of the machine's.
  Scheduler(Registry& registry, GpuAccounts& accounts, SliceController& slice_controller,
            bool old_driver);

  // One round for every GPU; for those whose time has come; for those where a client that rang has
  // something new to say. Each answers when to look again at any of them; 0: not before something
  // happens.
  Time look(Time now);
  Time look_at_due(Time now);
  Time look_at_those_of(const Client& client, Time now);

  void choose(Means means) { means_ = means; }
  Means chosen() const { return means_; }
  MeansInForce in_force(std::size_t gpu) const;
  // As of the last look.
  const MeansFacts& facts(std::size_t gpu) const { return gpus_[gpu].facts; }
  // What the one that yields to the high class gets, and why. Likewise.
  policy::Yielding yielding(std::size_t gpu) const;
  // For what a high client waits, "gpu" or "cpu"; null: not known.
  const char* waits_for(std::size_t gpu, ClientId client) const;

  // `slices` and `gates` follow from the means of each GPU; the rest is what a person has chosen.
  void choose(const policy::Rules& rules) { rules_ = rules; }
  const policy::Rules& rules() const { return rules_; }

 private:
  struct Gpu {
    policy::State state;
    policy::IslandStates islands;
    MeansFacts facts;
    Time due{0};                  // when to look again; 0: not before something happens
    std::uint32_t logged_us = 0;  // the slice of who yields, as the log last said it
  };
  void look_at(std::size_t gpu, Time now);
  policy::ClientView view_of(std::size_t gpu, const Client& client, const LaneReport& report,
                             const Client::Lane& lane);
  policy::Snapshot snapshot_of(std::size_t gpu);
  void log_yielding(std::size_t gpu);
  void apply(std::size_t gpu, const policy::Plan& plan, Time now);
  void grant_turns(Time now);
  Time next() const;

  Registry& registry_;
  GpuAccounts& accounts_;
  SliceController& slice_controller_;
  Means means_ = Means::kAuto;
  policy::Rules rules_;
  std::vector<Gpu> gpus_;
  policy::Grants grants_;  // of gangs, for all GPUs together
};

}  // namespace switchyard::monitor
