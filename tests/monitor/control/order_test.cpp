// The law of a job on one GPU: what is said of several processes does not depend on their order.
// Each is described by random words of its page and of the monitor; then they are exchanged.
#include <gtest/gtest.h>

#include <random>

#include "monitor/control/job_on_gpu.h"
#include "tests/monitor/rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

class ListingOrder : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::uint64_t kGranted = kGiB;

  ListingOrder() {
    for (const Joined* each : {&first, &second}) {
      each->shim.open_context();
      rig.account().granted(each->id, kGranted);
    }
    rig.pass(milliseconds(10));
    rig.tell("swap-out");
  }
  // Of equal seeds all is equal.
  void describe(const Joined& who, unsigned seed) {
    std::mt19937 random(seed);
    const auto roll = [&](std::uint64_t most) { return random() % (most + 1); };
    Client::Lane& lane = who.client->lanes.at(0);
    abi::Lane& words = who.lane();
    words.launches = roll(1000);
    words.graph_launches = roll(1000);
    words.copies = roll(1000);
    words.refusals = static_cast<std::uint32_t>(roll(9));
    words.credit_bytes = kGranted / 2;
    who.shim.memory().moved_out_bytes = roll(kGiB);
    for (const unsigned why : {0u, 1u}) who.shim.memory().stays_bytes[why] = roll(kMiB);
    const std::uint64_t total = roll(1) * roll(kGiB / 4);
    lane.residency = {.phase = roll(1) != 0 ? abi::kAbsent : abi::kLeaving,
                      .error = roll(1) != 0 ? abi::kSwapFailed : abi::kSwapFine,
                      .moves = static_cast<std::uint32_t>(roll(9)),
                      .total_bytes = total,
                      .resident_bytes = roll(1) != 0 ? total : roll(total),
                      .host_bytes = roll(kGiB)};
    lane.residency_order = {roll(3) != 0, roll(total), 0};
    lane.load = roll(2) == 0 ? -1 : 0.125 * static_cast<double>(roll(2));
    lane.share_got = roll(2) == 0 ? -1 : 0.125 * static_cast<double>(roll(2));
    lane.share_asked = 0.125 * static_cast<double>(roll(8));
    lane.order.closed = roll(1) != 0 ? abi::kClosedByLimit : 0;
    lane.order.armed = roll(1) != 0;
    lane.gate.held_threads = static_cast<std::uint32_t>(roll(3));
    lane.gate.waits = roll(99);
    lane.gate.state = static_cast<std::uint32_t>(roll(2));
    lane.had.divided_at = roll(1) != 0 ? rig.now : Time{0};
    lane.active = roll(1) != 0;
    lane.parker = roll(1) != 0 ? policy::found(1, roll(kMiB)) : policy::Parker{};
  }
  json list() {
    rig.monitor.gpus().read_credits(0);
    const Job& job = *rig.monitor.registry().find(first.client->job);
    const OnGpu sums = add_up(rig.monitor, job, 0, rig.now);
    json gpu = list_on_gpu_briefly(rig.monitor, job, 0, sums);
    list_rest_on_gpu(rig.monitor, job, 0, sums, gpu);
    // Of one process, the active one if there is any.
    for (const char* key :
         {"compute_slice_us", "copy_slice_us", "slice_in_force_us", "slice_status", "times"}) {
      gpu.erase(key);
    }
    return gpu;
  }

  Rig rig{2};
  Joined first = rig.join({.job = "j", .name = "x", .swappable = "yes"});
  Joined second = rig.join({.job = "j"});
};

TEST_P(ListingOrder, OfTwoProcessesWhichIsFirstDoesNotShow) {
  const unsigned seed = 2 * GetParam();
  describe(first, seed);
  describe(second, seed + 1);
  const json one = list();
  describe(first, seed + 1);
  describe(second, seed);
  EXPECT_EQ(one, list());
}

INSTANTIATE_TEST_SUITE_P(Seeds, ListingOrder, ::testing::Range(1u, 1 + test_support::seeds(40)));

}  // namespace
}  // namespace switchyard::monitor::test
