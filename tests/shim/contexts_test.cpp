// The mover's context: however often it is entered, one reference is held, and none afterwards.
#include "shim/contexts.h"

#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

class CurrentContext : public testing::EngineTest {
 protected:
  CurrentContext() {
    testing::use_contexts();
    world_.retained = world_.fewest_retained = 1;  // the application's
  }
  swap::MoverContext context_;
};

TEST_F(CurrentContext, IsRetainedOnceHoweverOftenItIsEntered) {
  EXPECT_TRUE(context_.enter(0));
  world_.fewest_retained = 2;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(context_.enter(0));
    EXPECT_EQ(world_.retained, 2);
  }
  EXPECT_EQ(world_.fewest_retained, 2) << "it might have ended in between";
  context_.leave();
  EXPECT_EQ(world_.retained, 1);
  context_.leave();
  EXPECT_EQ(world_.retained, 1);
}

TEST_F(CurrentContext, AReferenceThatAResetTookIsNotGivenBack) {
  EXPECT_TRUE(context_.enter(0));
  world_.primary = false;
  world_.retained = 0;
  EXPECT_FALSE(context_.enter(0));
  context_.leave();
  EXPECT_EQ(world_.retained, 0);
}

TEST_F(CurrentContext, OneOfAnotherGpuIsNotUsed) {
  world_.device = 1;
  EXPECT_FALSE(context_.enter(0));
  context_.leave();
  EXPECT_EQ(world_.retained, 1);
}

}  // namespace
}  // namespace switchyard::shim
