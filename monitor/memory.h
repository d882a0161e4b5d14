// Memory of all GPUs: the accounts brought together with the pages and with what NVML says.
//
// Concept. accounts.h knows the arithmetic; here is who asks for it. A grant is written into the
// ledger before the client can see it; credit is taken back from a page before the ledger forgets
// it. NVML is asked once a second, and before anything is refused, at most every 50 ms: what it
// says about a process beyond what the process counted is overhead and is charged to its job; what
// belongs to no client lessens the capacity.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/accounts.h"
#include "monitor/gpus.h"
#include "monitor/roster.h"
#include "switchyard/wire.h"

namespace switchyard::monitor {

class Memory {
 public:
  struct Outsider {
    pid_t pid = 0;
    std::uint64_t bytes = 0;
  };
  // One GPU, as last measured.
  struct Gpu {
    GpuInfo info;
    Account account;
    GpuMemory memory;
    std::vector<Outsider> outsiders;
    bool mps = false;  // NVIDIA's MPS server runs on it
    Time measured_at{-3600'000'000'000};
    bool stale = false;          // somebody left since; what it used may be an outsider's now
    std::uint64_t unlisted = 0;  // used, but by no process that NVML names
    std::uint64_t unlisted_before = 0;
  };

  Memory(Gpus& gpus, Roster& roster, std::optional<std::uint64_t> capacity);

  std::vector<Gpu>& all() { return gpus_; }
  const std::vector<Gpu>& all() const { return gpus_; }
  std::optional<std::size_t> find(const Uuid& uuid) const;
  std::optional<std::size_t> find_text(const std::string& uuid_text) const;

  // Asks NVML about one GPU.
  void measure(std::size_t gpu, Time now);
  void measure_all(Time now);
  // When the last answer is older than a second, or somebody left since.
  void measure_due(Time now);
  // The same, unless the last answer is younger than 50 ms.
  void measure_if_old(std::size_t gpu, Time now);
  void measure_loads();

  // Where the job's quota applies: the GPUs its clients listed; all, before there was a client.
  std::vector<std::size_t> gpus_of(const Job& job) const;
  // Promises the job's quota on its GPUs, where it fits; elsewhere the quota is a mere ceiling.
  // Answers how many GPUs promised it. Where none did, `why` names who holds what.
  std::size_t reserve(const Job& job, Time now, std::string& why);
  // Whether the quota could become `bytes`; if not, `why` names who holds what.
  bool can_become(const Job& job, std::uint64_t bytes, Time now, std::string& why);
  void forget(const Job& job);

  void join(Client& client, unsigned lane, std::uint64_t used_bytes);
  void leave(const Client& client);
  wire::Charged charge(Client& client, unsigned lane, std::uint64_t bytes, Time now);

  // Reads the credit words of a GPU's clients into its account.
  void read_credits(std::size_t gpu);
  // Writes quota and account words: of one job's clients, or of all.
  void write_pages(std::size_t gpu, std::optional<JobKey> only = std::nullopt);
  // Takes back credit that is over a quota or over the capacity.
  void rebalance(std::size_t gpu);

 private:
  struct Place {
    Client* client;
    unsigned lane;
    Client::Lane* state;
  };
  std::vector<Place> places(std::size_t gpu);
  std::optional<Place> place(std::size_t gpu, ClientId id);
  void write_page(Gpu& gpu, const Place& place, const Account::Totals& totals);
  std::uint64_t take_back(std::size_t gpu, ClientId id, std::uint64_t bytes);
  void take_from_givers(std::size_t gpu, JobKey job, ClientId except, std::uint64_t want);
  void measure_overheads(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                         const std::vector<std::uint64_t>& used_before);
  wire::Verdict refuse(std::size_t gpu, Client& client, Client::Lane& lane, Time now);
  bool everybody_waits(std::size_t gpu, const Client& asking, Time now);
  bool make_room(std::size_t gpu, JobKey job, std::uint64_t bytes, Time now);
  std::string who_holds_what(std::size_t gpu, JobKey except, std::uint64_t asked);

  Gpus& door_;
  Roster& roster_;
  std::optional<std::uint64_t> capacity_;
  std::vector<Gpu> gpus_;
};

}  // namespace switchyard::monitor
