// Slices of all GPUs: what is wanted of each client, brought into the pages by the appliers.
//
// Concept. One applier per GPU keeps the law that never two clients have a short slice in force.
// This is its way to the pages: it hears their words, and its writes go to them. Where jobs of
// another monitor may be (GpuAccounts::Gpu::foreign), nobody gets a short one.
//
// Threading: one thread.
#pragma once

#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"
#include "monitor/scheduling/slice_applier.h"

namespace switchyard::monitor {

class SliceController {
 public:
  // Short slices begin at `quiet_until`: clients of a monitor that just died may still have some.
  SliceController(Registry& registry, GpuAccounts& accounts, Time quiet_until);

  void join(const Client& client, bool maybe_short);
  void left(const Client& client);  // its socket closed; the process may live
  void died(ClientId client);
  // All that it had on GPUs is gone, and will be made anew on those where its lanes are now. Before
  // that its page asks for the driver's own slices.
  void moved(Client& client, Time now);

  // What a client's page says now; `before` is what it said at the last look.
  void heard(std::size_t gpu, ClientId client, const LaneReport& now, const LaneReport& before);
  void want(std::size_t gpu, ClientId client, Slices slices, Time now);
  // Writes what may be written now. Answers when to come again; 0: nobody has yet to confirm.
  Time write(std::size_t gpu, Time now);

  bool refuses(std::size_t gpu, ClientId client) const;
  bool in_force(std::size_t gpu, ClientId client) const;
  Slices wanted(std::size_t gpu, ClientId client) const;

 private:
  struct Gpu {
    SliceApplier applier;
    Time written_at{0};
    // A client has made a context since NVML was asked. If two monitors each give a short slice
    // only after they have asked with their own contexts there, one of them sees the other's.
    bool unchecked = false;
  };

  Registry& registry_;
  GpuAccounts& accounts_;
  Time quiet_until_;
  std::vector<Gpu> gpus_;
};

}  // namespace switchyard::monitor
