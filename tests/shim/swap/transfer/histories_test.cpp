// The law of all transfers together: whatever leaves, comes and changes, no byte is lost. A chunk's
// contents may become again what an older copy or digest of it says.
#include <random>
#include <string>

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
  void note(const char* what, std::uint64_t how) { said_ += what + std::to_string(how) + ";"; }
  std::uint64_t part() { return roll(3) == 0 ? UINT64_MAX : (1 + roll(4)) * kMiB2; }

  // The application works: two bytes of each chunk go to and fro.
  void work() {
    for (unsigned i = roll(4); i > 0; --i) {
      const unsigned range = roll(2);
      const unsigned chunk = roll(kChunks[range]);
      const bool zeroes = roll(6) == 0;
      note(zeroes ? " zero " : " change ", range * 10 + chunk);
      zeroes ? zero(range, chunk) : change(range, chunk, roll(2));
    }
  }
  void move() {
    const unsigned kind = roll(5);
    const std::uint64_t bytes = part();
    note(kMoves[kind], bytes == UINT64_MAX ? 99 : bytes / kMiB2);
    switch (kind) {
      case 0:
        out(bytes);
        break;
      case 1:
        out_parking(bytes);
        break;
      case 2:
        // All that is parked is on one GPU, and the contexts come on another one. At home the played
        // driver's files would lack what changes later.
        if (parking::parked(0).bytes != 0) break;
        out_keeping(bytes);
        parking::is_on(0, 1);
        break;
      case 3:
        move_on(bytes);
        break;
      default:
        in(bytes);
    }
  }
  void comes_back() {
    note(" all in ", 99);
    EXPECT_EQ(in().stop, Stop::kNothing);
    EXPECT_EQ(g_resident, static_cast<std::int64_t>(kAll));
    EXPECT_EQ(parking::parked(0).bytes, 0u);
  }

  static constexpr const char* kMoves[] = {" out ", " out parking ", " out keeping ", " on ",
                                           " in "};
  std::string said_;  // what was done, for who looks for the reason

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
  EXPECT_FALSE(HasFailure()) << said_;
}

INSTANTIATE_TEST_SUITE_P(Seeds, Histories, ::testing::Range(1u, 1 + test_support::seeds(10)));

}  // namespace
}  // namespace switchyard::shim
