// The mover's context: however often it is entered, one reference is held, and none afterwards. And
// the notes of contexts that the process made.
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

CUcontext made(std::uintptr_t number) { return reinterpret_cast<CUcontext>(0x1000 + number); }

// The GPU that it was noted on; -1: it was not.
int forget(CUcontext context) {
  const swap::Made noted = swap::made_context(context);
  swap::forget_context(context, noted);
  return noted.lane;
}

TEST(MadeContexts, AreThoseOfOneGpuUntilTheyEnd) {
  swap::note_context(made(1), 6);
  swap::note_context(made(2), 7);
  swap::note_context(made(3), 6);
  EXPECT_EQ(forget(made(1)), 6);
  EXPECT_EQ(forget(made(1)), -1);
  const swap::MadeContexts left(6);
  ASSERT_EQ(left.count, 1u);
  EXPECT_EQ(left.context[0], made(3));
  EXPECT_EQ(forget(made(2)), 7);
  EXPECT_EQ(forget(made(3)), 6);
}

TEST(MadeContexts, AHandleThatIsAnothersByNowIsNotForgotten) {
  swap::note_context(made(1), 5);
  const swap::Made first = swap::made_context(made(1));
  swap::note_context(made(1), 5);
  swap::forget_context(made(1), first);
  const swap::Made second = swap::made_context(made(1));
  EXPECT_NE(second.id, 0u);
  EXPECT_NE(second.id, first.id);
  EXPECT_EQ(forget(made(1)), 5);
}

TEST(MadeContexts, ItSaysWhenThereAreMoreThanItHolds) {
  constexpr std::size_t kMost = swap::MadeContexts::kMost;
  for (std::size_t i = 0; i < kMost; ++i) swap::note_context(made(i), 5);
  EXPECT_TRUE(swap::MadeContexts(5).all);
  EXPECT_EQ(swap::MadeContexts(5).count, kMost);
  swap::note_context(made(kMost), 5);
  EXPECT_FALSE(swap::MadeContexts(5).all);
  for (std::size_t i = 0; i <= kMost; ++i) EXPECT_EQ(forget(made(i)), 5);
}

}  // namespace
}  // namespace switchyard::shim
