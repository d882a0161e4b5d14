// The laws of residency, over random orders and failures, with the mover, its pipeline and a driver
// whose calls fail.
#include <random>

#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/seeds.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::residency::MoverState;

class MoverLaws : public MoverTest {
 protected:
  static MoverState state() { return swap::residency::executor(0).state(); }

  void change_something(std::mt19937& random) {
    const auto roll = [&](unsigned sides) { return random() % sides; };
    switch (roll(11)) {
      case 0:
      case 1:
        words().order.fetch_add(1);
        limit(roll(6) * kMiB2);
        break;
      case 2:
        words().order.fetch_add(1);
        lift();
        break;
      case 3:
        allow_host(roll(2) * swap::pinned_pool::kSlab);
        break;
      case 4: {
        const CUresult error = roll(2) == 0 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY;
        faults().fail(static_cast<int>(roll(30)), error);
        break;
      }
      case 5:
        world_.wait_result = roll(2) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
        break;
      case 6:
        set_primary(roll(2) == 0);
        break;
      case 7:
        process().joined.store(roll(2));
        break;
      case 8:
        find_another_monitor();
        break;
      case 9:
        page().lanes[0].precopy.store(roll(2));
        page().lanes[0].unpin.store(roll(3));
        break;
      default:
        // The service thread's part, or the order changes while the accepted work ends.
        world_.during_wait = [this, late = roll(2) == 0] {
          if (!late) return lift();
          mover_.now_ns.fetch_add(11 * kSecond);
          swap::admission::overrule(now());
        };
        return;
    }
    world_.during_wait = nullptr;
  }

  // A fresh page with the same order: what it is told is what is so.
  void find_another_monitor() {
    const auto fresh = std::make_unique<abi::Page>();
    swap::residency_page::carry_over(*fresh);
    EXPECT_EQ(fresh->residencies[0].phase.load(), phase());
    EXPECT_EQ(fresh->residencies[0].resident_bytes.load(), resident());
    begin_fresh_page(1);
    EXPECT_EQ(words().answered.load(), abi::kAnswersNone);
  }

  void expect_laws() {
    expect_told_right();  // each chunk is on the device or in the host
    EXPECT_EQ(admits(), swap::residency::admits(state()));
    if (state() == MoverState::kResident) {
      EXPECT_EQ(resident(), kAll) << "work is admitted";
    }
  }

  void calm() {
    world_.during_wait = nullptr;
    world_.wait_result = CUDA_SUCCESS;
    faults().none();
    process().joined.store(1);
    allow_host(swap::pinned_pool::kSlab);
    lift();
    page().lanes[0].unpin.store(0);
    // Even where the primary context is there: what ended by its own error needs a new one.
    world_.primary = true;
    swap::mover::context_made(0);
  }
};

TEST_F(MoverLaws, AnyOrderAndFailureKeepsThemAndAllComesBackOnceItIsCalm) {
  std::mt19937 random(4711);
  for (unsigned play = 0; play < test_support::seeds(40); ++play) {
    SCOPED_TRACE(play);
    swap::clear_digests();
    for (int i = 0; i < 40 && !HasFailure(); ++i) {
      change_something(random);
      look();
      expect_laws();
      if (state() == MoverState::kResident) change(random() % 2, random() % 2, random() % kMiB2);
    }
    calm();
    ASSERT_TRUE(run_until([&] { return is_back(); })) << static_cast<int>(state());
    EXPECT_EQ(resident(), kAll);
    expect_laws();
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace switchyard::shim
