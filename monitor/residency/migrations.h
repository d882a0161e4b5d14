// Migrations: a job goes from one GPU to another, with all its processes.
//
// Concept. The table of policy/migration.h decides; here is its executor. It reads in the pages how
// far each process is, and tells the residency table that the job is wanted out (Reason::kMove). It
// tells each process where it shall be, and counts it there. On both GPUs room is kept for the job
// until the end, so that it can go back at any time.
//
// Before the job is held, its host pools are unpinned (abi.h: unpin). Memory that goes by the host
// is copied there before (precopy). A job that grew meanwhile is looked at once more. It is the
// same move without that, only slower.
//
// A process that moves exchanges the two GPUs: if it sees both, each of its lanes is of the other
// one from then on. Its word on that is believed only if it was told so, and only of these two.
//
// Threading: one thread.
#pragma once

#include <optional>
#include <string>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"
#include "monitor/residency/memory_broker.h"
#include "monitor/scheduling/slice_controller.h"

namespace switchyard::monitor {

class Migrations {
 public:
  Migrations(Registry& registry, GpuAccounts& gpus, MemoryBroker& memory, SliceController& slices);

  // Why the job can't go to that GPU, before anything is touched; empty: it can.
  std::string why_not(const Job& job, std::size_t to, Time now);
  // `by`: the person who asks for it. pre: nothing speaks against it.
  void begin(Job& job, std::size_t to, const std::optional<Peer>& by, Time now);

  // Looks at all of them. True: one has ended, so what it kept is free.
  bool follow(Time now);

 private:
  // But for what it waits for or lacks on the other GPU.
  std::string why_it_stays(const Job& job) const;
  std::string why_no_room(const Job& job, std::size_t from, std::size_t to, Time now);
  // Why what has changed while it prepared speaks against it; empty: it can go.
  std::string why_not_now(const Job& job, Time now);
  // Which host pools can be unpinned before: `each` is called with those, and with whether their
  // memory is copied there first.
  template <typename Each>
  void for_spare_pools(Job& job, Each each);
  // Notes how much of its memory has come.
  migration::Seen see(Job& job) const;
  void act(Job& job, migration::Action action, Time now);
  void prepare(Job& job);
  void leave(Job& job, Time now);
  std::vector<Uuid> uuids() const;
  void land(Job& job, Time now);
  void arrive(Job& job, Time now);
  void end(Job& job, Time now);
  // Counts the GPUs that it has a context on, and the quota there.
  void settle_gpus(Job& job, Time now);
  void note_failure(Job& job, const migration::Seen& seen, Time now) const;
  void note_prepared(const Job& job, const migration::Seen& seen, Time now) const;
  void keep_room(const Job& job);
  bool is_on(const Client& client, unsigned lane, std::size_t gpu) const;
  void exchange(Client& client, std::size_t a, std::size_t b, Time now);
  // Counts a client where it says that it is. Does nothing while it is on its way.
  void settle(Client& client, Time now);

  Registry& registry_;
  GpuAccounts& gpus_;
  MemoryBroker& memory_;
  SliceController& slices_;
  std::uint32_t unpin_ = 0;  // the last request
};

}  // namespace switchyard::monitor
