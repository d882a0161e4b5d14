// What a rank of a made-up training writes into its page: collectives, how long they took, and the
// norms of its gradients.
//
// Threading: one thread, the test's.
#pragma once

#include <cstdint>

#include "switchyard/collectives.h"
#include "tests/monitor/fake_shim.h"

namespace switchyard::monitor::test {

class Training {
 public:
  // One more collective of its first communicator. A step has two buckets of gradients and a gather.
  // `late`: by so much others slow it down. `odd`: something else comes between.
  static void collective(const FakeShim& shim, Time now, unsigned ranks, unsigned late, bool odd) {
    abi::Page& page = shim.page();
    const std::uint64_t number = page.communicators[0].launched + 1;
    const unsigned in_step = static_cast<unsigned>(number % 3);
    const auto kind = static_cast<std::uint32_t>(odd            ? Collective::kBroadcast
                                                 : in_step == 2 ? Collective::kAllGather
                                                                : Collective::kAllReduce);
    const std::uint32_t bytes = in_step == 0 ? 36'000 : 40'000;
    shim.collective(kind, bytes, now);
    page.communicators[0].bytes += bytes;
    page.process.collectives[kind] += 1;
    page.process.collective_bytes[kind] += bytes;
    if (in_step != 2 && !odd) {
      const double after = ranks * ranks * (2 + in_step / 8.0);
      shim.tell_norms(abi::kNormSummed, number, bytes / 4, 3 + late / 32.0, after);
    }
    if ((shim.lane().attention & abi::kTimeCollectives) == 0) return;
    const auto began = static_cast<std::uint32_t>(now / std::chrono::microseconds(1));
    shim.tell_timing(abi::collective_record(0, kind, number), began, 200'000 * (1 + late));
    if (number % 5 == 0) mark(shim, abi::TimingMark::kStalled, began + 100);
    if (number % 64 == 0) mark(shim, abi::TimingMark::kUntimed, began);
    if (number % 99 == 0) mark(shim, abi::TimingMark::kGraph, began);
  }

 private:
  static void mark(const FakeShim& shim, abi::TimingMark which, std::uint32_t began_us) {
    shim.tell_timing(abi::timing_mark(0, which), began_us, 100'000);
  }
};

}  // namespace switchyard::monitor::test
