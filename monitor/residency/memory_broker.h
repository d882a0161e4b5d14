// Memory that clients ask for: grants, quotas, refusals and waiting.
//
// Concept. account.h knows the arithmetic; here is who asks for it. A grant is written into the
// ledger before the client can see it; credit is taken back from a page before the ledger forgets
// it. Before anything is refused, it is measured anew (nvml_sampler.h).
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/accounting/nvml_sampler.h"
#include "monitor/core/registry.h"
#include "switchyard/wire.h"

namespace switchyard::monitor {

class MemoryBroker {
 public:
  MemoryBroker(Registry& registry, GpuAccounts& gpus, NvmlSampler& sampler);

  // Where the job's quota is promised: on the GPUs that it was created for, and on those that it
  // uses. Until it is settled which these are, on all that it may use: the processes of a job begin
  // one after the other.
  std::vector<std::size_t> gpus_of(const Job& job) const;
  std::optional<std::uint64_t> quota_on(const Job& job, std::size_t gpu) const;
  // Notes which GPUs the jobs use, and settles those that have used one for a minute. True: some
  // quota is promised on fewer GPUs now.
  bool follow_use(Time now);
  // Promises the job's quota on its GPUs, where it fits; elsewhere the quota is a mere ceiling.
  // Answers how many GPUs promised it. Where none did, `why` names who holds what.
  std::size_t reserve(const Job& job, Time now, std::string& why);
  // Whether the quota could become that; if not, `why` names who holds what.
  bool can_become(const Job& job, const MemoryQuota& quota, Time now, std::string& why);
  // Whether the job could have so much on that GPU; if not, `why` names who holds what.
  bool has_room(const Job& job, std::size_t gpu, std::uint64_t bytes, Time now, std::string& why);
  void forget(const Job& job);

  // Memory that leaves and comes back (residency.h). Once all of a job's has left, suspend() makes
  // its promises mere ceilings, and takes idle credit back. Nobody knows what another monitor had
  // promised: all, in doubt.
  void suspend(const Job& job, bool under_another = false);
  // Promises again what was promised, and charges in full, on all its GPUs or on none. False: it
  // doesn't fit.
  bool reclaim(const Job& job, Time now);

  void join(Client& client, unsigned lane, std::uint64_t used_bytes);
  // A client's claim of memory under another monitor is believed as far as NVML sees it. Of a
  // swappable job NVML may not see all: check_claims() does, once the page says where it is.
  void check_claim(Client& client, unsigned lane, Time now);
  void check_claims(Time now);
  // A client that waited for memory may have found it in its own: it does not tell.
  void end_waits(Time now);
  void leave(const Client& client);
  wire::Charged charge(Client& client, unsigned lane, std::uint64_t bytes, Time now);

  // Writes quota and account words: of one job's clients, or of all.
  void write_pages(std::size_t gpu, std::optional<JobKey> only = std::nullopt);
  // Takes back credit that is over a quota or over the capacity.
  void rebalance(std::size_t gpu);

 private:
  using Gpu = GpuAccounts::Gpu;
  using ClientOnGpu = GpuAccounts::ClientOnGpu;
  void write_page(Gpu& gpu, const ClientOnGpu& place, const Account::Totals& totals);
  std::uint64_t take_back(std::size_t gpu, ClientId id, std::uint64_t bytes);
  void take_from_givers(std::size_t gpu, JobKey job, ClientId except, std::uint64_t want);
  static void begin_wait(Client::Lane& lane, Time now);
  // Of so many bytes that a client asks for, those that its credit does not have.
  static std::uint64_t missing(const Account& account, const Client& client, std::uint64_t bytes);
  // Finds memory for them, by fresh figures where it is near its end.
  void gather(std::size_t gpu, const Client& client, std::uint64_t bytes, Time now);
  // The answer to a client that does not get the memory that it lacks: to wait, or the refusal and
  // its reason.
  wire::Charged refuse(std::size_t gpu, Client& client, Client::Lane& lane, Time now);
  // Whether what is parked on the GPU makes way for what it lacks, so that it should ask again.
  bool waits_for_parked(std::size_t gpu, const Client& client, Client::Lane& lane,
                        std::uint64_t lacks, Time now);
  bool note_use(Job& job) const;
  bool everybody_waits(std::size_t gpu, const Client& asking, Time now);
  bool make_room(std::size_t gpu, JobKey job, std::uint64_t bytes, Time now);
  std::string who_holds_what(std::size_t gpu, JobKey except, std::uint64_t asked);

  Registry& registry_;
  GpuAccounts& gpus_;
  NvmlSampler& sampler_;
};

}  // namespace switchyard::monitor
