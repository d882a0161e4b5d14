// What NVML says about memory, brought into the accounts.
//
// Concept. NVML is asked once a second, and before anything is refused, at most every 50 ms. Its
// figure for a process, beyond the process's own count of memory on the device, is overhead
// (contexts, modules) and charged to its job. Memory that belongs to no client lessens the
// capacity. So a client that says that its memory has left, while it has not, is charged for it as
// overhead.
//
// Memory with an open descriptor NVML counts as used and as nobody's, once who made it has released
// it (measured). So what a client counts and NVML doesn't call its own is looked for among what is
// nobody's before that lessens the capacity. Memory that may come to a client may have left another
// and not be in use yet. So both its overhead and the unattributed memory are only known to that
// extent.
//
// Memory that was given to others may live longer than its maker. Then it is nobody's to NVML, and
// it counts at once, for its room was its maker's until then. It is charged, as overhead, to those
// clients of the same user that say that they have memory of others; the rest lessens the capacity.
// A process takes time to end: its connection may close seconds before NVML lets go of it. So what
// becomes nobody's within ten seconds is still taken for its memory.
//
// Two monitors of one GPU, in containers, say, must never give two short slices. So a process that
// computes there, is no client and may have the library makes the GPU `foreign`: nobody gets a
// short slice on it. Where NVML names no process at all, memory that was there before the clients
// does.
//
// Overhead comes unasked, and is seen up to a second later. Jobs that take turns fill the device to
// the brim, and a module that then finds no room ends its job. So where there are any of them, a
// part of the device is given out to nobody.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/platform/gpus.h"
#include "monitor/platform/library_looks.h"

namespace switchyard::monitor {

// A part of the device: 2.2 GiB of an H200, where cuBLAS and cuDNN may load a gigabyte at once.
inline constexpr std::uint64_t kKeptForOverhead = 64;

class NvmlSampler {
 public:
  // `capacity`: at most so much of each GPU is given out.
  NvmlSampler(Gpus& door, GpuAccounts& gpus, std::optional<std::uint64_t> capacity);

  // A client is about to leave. Memory of it that others may have counts as taken until NVML has
  // said whether it is free.
  void leaves(const Client& client);

  // Asks NVML about one GPU.
  void measure(std::size_t gpu, Time now);
  void measure_all(Time now);
  // When the last answer is older than a second, or somebody left since.
  void measure_due(Time now);
  // The same, unless the last answer is younger than 50 ms.
  void measure_if_old(std::size_t gpu, Time now);
  // The most that a client can have on the device, by the last answer: all that is used and no
  // other process's. Where NVML names none of the clients, what is no other client's.
  std::uint64_t most_of(std::size_t gpu, const Client& client);
  // How much of the time each process' kernels were resident, and how hard each GPU works.
  void measure_loads();

 private:
  // What the account takes to be on the device of a client.
  struct Counted {
    std::uint64_t resident = 0;
    std::uint64_t expected = 0;  // and what may come
  };
  // What NVML calls a client's; 0 when it names none of them.
  struct Ours {
    GpuAccounts::ClientOnGpu place;
    Counted counted;
    std::uint64_t nvml_bytes = 0;
  };
  struct Answer {
    std::vector<Ours> named, unnamed;
    std::uint64_t coming = 0;   // to any of them
    std::uint64_t nobodys = 0;  // used, and of no process that was named
    std::uint64_t outside = 0;  // of processes that are no clients
  };

  std::vector<Counted> count(std::size_t gpu);
  Answer sort_out(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                  const std::vector<Counted>& before);
  // Answers the rest of `nobodys`.
  static std::uint64_t measure_named(const std::vector<Ours>& named, std::uint64_t nobodys);
  static void measure_unnamed(const std::vector<Ours>& unnamed, std::uint64_t theirs);
  // Whether a process that is no client may have slices from another monitor.
  bool foreign_work(const GpuAccounts::Gpu& at, const Answer& answer);
  void follow_exports(std::size_t gpu, Time now);
  // Of what is nobody's, the part that was exported by who has freed it or left.
  static std::uint64_t find_orphaned(GpuAccounts::Gpu& at, std::uint64_t nobodys);
  // Of what is nobody's, what orphaned memory is: the clients that have it are charged for it.
  // Answers how much they are charged.
  std::uint64_t charge_orphaned(std::size_t gpu, std::map<ClientId, std::uint64_t>& charged);
  void measure_overheads(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                         const std::vector<Counted>& before, Time now);

  Gpus& door_;
  GpuAccounts& gpus_;
  std::optional<std::uint64_t> capacity_;
  LibraryLooks libraries_;
};

}  // namespace switchyard::monitor
