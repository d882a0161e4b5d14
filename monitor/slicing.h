// Slices of all GPUs: what the policy wants, brought into the pages by the applier.
//
// Concept. look() is the whole loop for one GPU: copy what the pages say, decide, apply. It is
// cheap enough for four times a second and for every wake.
//
// Threading: one thread.
#pragma once

#include <string>
#include <vector>

#include "monitor/applier.h"
#include "monitor/memory.h"
#include "monitor/policy/policy.h"
#include "monitor/roster.h"

namespace switchyard::monitor {

class Slicing {
 public:
  // Short slices begin at `quiet_until`: clients of a monitor that just died may still have some.
  Slicing(Roster& roster, Memory& memory, Time quiet_until);

  void join(const Client& client, bool maybe_short);
  void left(const Client& client);  // its socket closed; the process may live
  void died(ClientId client);

  // One round for every GPU. True: somebody has not confirmed yet, look again soon.
  bool look(Time now);

  // False: all slices go back to the driver's default, and no new ones come.
  void allow(bool on) { allowed_ = on; }
  bool allowed() const { return allowed_; }
  // Why a GPU gets no slices; empty when it does.
  std::string reason_without(std::size_t gpu) const;
  Slices wanted(std::size_t gpu, ClientId client) const {
    return gpus_[gpu].applier.written(client);
  }

 private:
  struct Gpu {
    policy::State state;
    SliceApplier applier;
  };
  void look_at(std::size_t gpu, Time now);
  void apply(std::size_t gpu, const policy::Plan& plan, Time now);

  Roster& roster_;
  Memory& memory_;
  Time quiet_until_;
  bool allowed_ = true;
  std::vector<Gpu> gpus_;
};

}  // namespace switchyard::monitor
