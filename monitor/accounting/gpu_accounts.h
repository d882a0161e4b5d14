// The GPUs that the monitor governs: the account of each, what was measured of it last, and which
// lanes of which clients are on it.
//
// Concept. nvml_sampler.h brings in what NVML says, memory_broker.h what clients ask for; both work
// on these accounts, and everybody else looks at them.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/core/account.h"
#include "monitor/core/registry.h"
#include "monitor/platform/gpus.h"

namespace switchyard::monitor {

// Of what a client holds, the bytes that are not on the GPU: while its contexts are away, all.
inline std::uint64_t away_bytes(const Account::Holding& holding, const ResidencyReport& said) {
  return said.detached() ? holding.used() : said.away_bytes();
}

class GpuAccounts {
 public:
  struct ForeignProcess {
    pid_t pid = 0;
    std::uint64_t bytes = 0;
  };
  // One GPU, as last measured.
  struct Gpu {
    GpuInfo info;
    Account account;
    GpuMemory memory;
    std::vector<ForeignProcess> foreign_processes;
    bool mps_listed = false;  // NVML names a process of MPS on it
    // Somebody else's jobs may be on it, under another monitor that gives them slices, too.
    bool foreign = false;
    std::vector<ProcessMemory> listed;              // by NVML
    bool lists = false;                             // NVML answered who uses it
    std::optional<std::vector<ProcessLoad>> loads;  // its last samples; none: it has none
    GpuCondition condition;
    Time measured_at{-3600'000'000'000};
    bool stale = false;         // somebody left since; what it used may be a foreign process's now
    UnattributedMeter nobodys;  // used, but by no process that NVML names
    // Memory that clients say others may have, and such memory that is used still after its maker
    // has freed it or left; by user.
    std::map<uid_t, std::uint64_t> exported, orphaned;
    // Of the memory whose maker has just freed it or left, what NVML has not called nobody's yet.
    struct Leaving {
      std::uint64_t bytes = 0;
      Time until{};
    };
    std::map<uid_t, Leaving> leaving;
  };
  // A lane of a client that is on a GPU.
  struct ClientOnGpu {
    Client* client;
    unsigned lane;
    Client::Lane* state;
  };

  GpuAccounts(const std::vector<GpuInfo>& infos, Registry& registry,
              std::optional<std::uint64_t> capacity);

  std::vector<Gpu>& all() { return gpus_; }
  const std::vector<Gpu>& all() const { return gpus_; }
  std::size_t size() const { return gpus_.size(); }
  Gpu& operator[](std::size_t gpu) { return gpus_[gpu]; }
  const Gpu& operator[](std::size_t gpu) const { return gpus_[gpu]; }
  std::optional<std::size_t> find(const Uuid& uuid) const;
  std::optional<std::size_t> find_text(const std::string& uuid_text) const;

  std::vector<ClientOnGpu> clients_on(std::size_t gpu);
  // Whether any of them is of a job that oversubscribes.
  bool takes_turns(std::size_t gpu) const;
  std::optional<ClientOnGpu> client_on(std::size_t gpu, ClientId id);
  // The account's grant to a client there. Of what its page says that it has, no more counts for
  // others.
  std::uint64_t granted(const Client& client, const Client::Lane& lane) const {
    const Account::Holding* holding = gpus_[lane.gpu].account.holding(client.id);
    return holding != nullptr ? holding->granted : 0;
  }
  // Reads what a GPU's clients show of their credit, and of what is away, into its account.
  void read_credits(std::size_t gpu);

  // Whether the accounts count only the job's memory that is on the GPU, or all of its memory.
  void set_released(JobKey job, bool released);

  // The bytes of a GPU that jobs and other processes may have. A part of its memory is a part of
  // this. 0: unknown.
  std::uint64_t gives(std::size_t gpu) const;
  // The same of the largest.
  std::uint64_t largest() const;

  // Pinned memory of the host for what is swapped out, of all GPUs together.
  std::uint64_t host_pool_bytes = 0;

 private:
  void read_parked(const ClientOnGpu& on);

  Registry& registry_;
  const std::optional<std::uint64_t> capacity_;
  std::vector<Gpu> gpus_;
};

}  // namespace switchyard::monitor
