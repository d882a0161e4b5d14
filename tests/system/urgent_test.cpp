// Reduce-scatters on a communicator of their own (`run --urgent-collectives`), in real processes.
#include "tests/system/gang_scene.h"

namespace switchyard::system_tests {
namespace {

using Counts = std::vector<long>;

class Urgent : public Gang {
 protected:
  static Changes urgent() { return {{"SWITCHYARD_URGENT_COLLECTIVES", "yes"}}; }

  // Rank 1's reduce-scatter can't begin before "free"; then all ranks gather on a second stream.
  void scatter_late_and_gather() {
    EXPECT_EQ(ask(rank(1), "late"), "did late");
    do_all("scatter 1");
    do_all("side");
  }
};

TEST_F(Urgent, AnAllGatherOvertakesAReduceScatter) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  scatter_late_and_gather();
  do_all("syncside");
  EXPECT_EQ(ask_all("busy"), (Words{"busy 1", "busy 1"}));
  EXPECT_EQ(ask(rank(1), "free"), "did free");
  do_all("sync");
  EXPECT_EQ(ask_all("scattered"), (Words{"right", "right"}));
}

TEST_F(Urgent, WithoutTheOptionItQueues) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_EQ(ask_all("live"), (Words{"live 1", "live 1"}));
  scatter_late_and_gather();
  EXPECT_EQ(ask(rank(1), "free"), "did free");
  do_all("syncside");
  EXPECT_EQ(ask_all("busy"), (Words{"busy 0", "busy 0"}));
  EXPECT_EQ(ask_all("scattered"), (Words{"right", "right"}));
}

}  // namespace
}  // namespace switchyard::system_tests
