// The pipeline's world: a driver whose device memory is ordinary memory, and two ranges of chunks
// of 2 MiB whose contents are known.
//
// Concept. Memory that comes is full of rubbish, and so is what has left. Copies and sets happen
// only when the stream, or an event behind them, is waited for. So work that is not waited for
// reads and writes rubbish. Kernels of digests are computed at the launch. The calls that may fail
// are watched (engine/faults.h).
//
// Threading: the driver's calls may come from several threads; the rest is for one.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/parking.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/transfer/pipeline.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim::testing {

inline constexpr std::uint64_t kMiB2 = swap::kSmallestChunk;

struct Driven {
  std::mutex lock;  // of what follows
  int live_handles = 0;
  int copies_in = 0;
  int copies_beside = 0;  // between GPUs
  int sets = 0;
  int launches = 0;
  std::vector<std::uint64_t> permitted;  // bytes of each call
  std::vector<std::size_t> beside;       // the work in flight at each of these
  std::vector<std::uint64_t> unmapped;   // likewise, refused or not
  bool unmaps = true;
  bool kernels_write = true;
  bool computes_wrongly = false;
  std::map<CUmemGenericAllocationHandle, int> imported;           // the file with its contents
  int mapped_from_files = 0;                                      // of them, now
  std::uintptr_t streams = 0x50;                                  // the last that was made
  std::map<CUstream, std::vector<std::function<void()>>> queued;  // its work, the oldest first
  // How much of which stream each event stands behind.
  std::map<CUevent, std::pair<CUstream, std::size_t>> recorded;

  void run(CUstream stream, std::size_t most) {
    auto& work = queued[stream];
    most = most < work.size() ? most : work.size();
    for (std::size_t i = 0; i < most; ++i) work[i]();
    work.erase(work.begin(), work.begin() + static_cast<std::ptrdiff_t>(most));
    for (auto& [event, place] : recorded) {
      if (place.first == stream) place.second = place.second > most ? place.second - most : 0;
    }
  }
};

class PipelineTest : public EngineTest {
 protected:
  PipelineTest();
  ~PipelineTest() override;

  // The GPU's host pool has room for all of it.
  static void fill_pool(unsigned lane);
  void add(const std::vector<std::uint64_t>& chunks);
  // Somebody else has all of it but so much, until it is given back.
  void take_host_room_but(std::uint64_t bytes);
  void give_host_room_back();

  // What the application does with its memory.
  char* chunk_at(std::size_t range, unsigned chunk) const;
  void change(std::size_t range, unsigned chunk, std::uint64_t at = 0);
  void zero(std::size_t range, unsigned chunk);

  // Each chunk's contents are where it says that they are.
  void expect_nothing_lost();

  swap::Moved out(std::uint64_t bytes = UINT64_MAX);
  // As much as `most` may be parked on the GPU of lane 1.
  swap::Moved out_parking(std::uint64_t most);
  // As much as `most` is kept where it is. pre: use_descriptors().
  swap::Moved out_keeping(std::uint64_t most);
  // The driver exports memory as files, and imports it.
  static void use_descriptors();
  static swap::Moved move_on(std::uint64_t bytes = UINT64_MAX);
  // Empty slabs are given back behind it.
  swap::Moved in(std::uint64_t bytes = UINT64_MAX);
  static std::uint64_t kept();

  Driven driven_;
  std::vector<swap::pinned_pool::HostPiece> taken_;
  // Each range stands before the one that was made earlier, in every run.
  static constexpr std::size_t kMostRanges = 16;
  static constexpr std::size_t kRangeBytes = 3 * kMiB2;
  char* arena_ = static_cast<char*>(
      ::mmap(nullptr, kMostRanges* kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<char*> memories_;
  std::vector<std::string> contents_;
};

// What the pipeline told of memory on the device.
extern std::int64_t g_resident;

}  // namespace switchyard::shim::testing
