// The law of all transfers together: whatever leaves, comes and changes, no byte is lost. A chunk's
// contents may become again what an older copy or digest of it says.
#include <random>

#include "shim/swap/memory/parking.h"
#include "tests/shim/swap/transfer/pipeline_world.h"
#include "tests/support/seeds.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Stop;
namespace parking = swap::parking;

class Histories : public PipelineTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  static constexpr std::uint64_t kAll = 5 * kMiB2;
  // Chunks of each range.
  static constexpr unsigned kChunks[] = {3, 2};

  Histories() {
    parking::clear();
    use_descriptors();
  }
  unsigned roll(unsigned sides) { return random_() % sides; }
  std::uint64_t part() { return roll(3) == 0 ? UINT64_MAX : (1 + roll(4)) * kMiB2; }

  // The application works: two bytes of each chunk go to and fro.
  void work() {
    for (unsigned i = roll(4); i > 0; --i) {
      const unsigned range = roll(2);
      const unsigned chunk = roll(kChunks[range]);
      roll(6) == 0 ? zero(range, chunk) : change(range, chunk, roll(2));
    }
  }
  void move() {
    switch (roll(5)) {
      case 0:
        out(part());
        break;
      case 1:
        out_parking(part());
        break;
      case 2:
        // All that is parked is on one GPU. The contexts come back on it, or on another one.
        if (parking::parked(0).bytes != 0) break;
        out_keeping(part());
        if (roll(2) == 0) in(part());
        parking::is_on(0, 1);
        break;
      case 3:
        move_on(part());
        break;
      default:
        in(part());
    }
  }
  void comes_back() {
    EXPECT_EQ(in().stop, Stop::kNothing);
    EXPECT_EQ(g_resident, static_cast<std::int64_t>(kAll));
    EXPECT_EQ(parking::parked(0).bytes, 0u);
  }

 private:
  std::mt19937 random_{GetParam()};
};

TEST_P(Histories, NoByteIsLost) {
  for (unsigned round = 0; round < 15 && !HasFailure(); ++round) {
    work();
    for (unsigned i = 1 + roll(4); i > 0 && !HasFailure(); --i) {
      move();
      expect_nothing_lost();
    }
    comes_back();
    expect_nothing_lost();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Histories, ::testing::Range(1u, 1 + test_support::seeds(10)));

}  // namespace
}  // namespace switchyard::shim
