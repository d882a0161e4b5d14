// How ranks decide together: who votes what, and what all read. The clock is the mover's world's.
#include "shim/nccl/agreement.h"

#include <string.h>

#include "tests/shim/nccl/nccl_world.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using namespace nccl::agreement;

class Agreement : public MoverTest {
 protected:
  std::uint64_t waited(Question question, bool decision) {
    const std::uint64_t before = g_mover->now_ns.load();
    EXPECT_EQ(outcome(board_, question), decision);
    return g_mover->now_ns.load() - before;
  }

  Board board_{};
};

TEST_F(Agreement, AllHaveToVoteForIt) {
  vote(board_, kMake, 3, true);
  vote(board_, kMake, 3, true);
  EXPECT_EQ(board_.votes[kMake].decision.load(), switchyard::agreement::kOpen);
  vote(board_, kMake, 3, true);
  EXPECT_EQ(waited(kMake, true), 0u);
}

TEST_F(Agreement, OneAgainstItDecidesAtOnce) {
  vote(board_, kMake, 3, true);
  vote(board_, kMake, 3, false);
  EXPECT_EQ(waited(kMake, false), 0u);
  vote(board_, kMake, 3, true);
  vote(board_, kMake, 3, true);
  EXPECT_EQ(waited(kMake, false), 0u) << "it never changes";
}

TEST_F(Agreement, AVoteThatDoesNotComeDecidesAgainstIt) {
  vote(board_, kMake, 2, true);
  EXPECT_GE(waited(kMake, false), kPatienceNs);
  vote(board_, kMake, 2, true);
  EXPECT_EQ(waited(kMake, false), 0u) << "who comes late reads the same";
}

TEST_F(Agreement, AVoteThatComesInTimeIsWaitedFor) {
  vote(board_, kMake, 2, true);
  const std::uint64_t begin = g_mover->now_ns.load();
  g_mover->during_sleep = [&] {
    if (g_mover->now_ns.load() - begin < kPatienceNs / 2) return;
    if (board_.votes[kMake].voted.load() == 1) vote(board_, kMake, 2, true);
  };
  EXPECT_LT(waited(kMake, true), kPatienceNs);
}

TEST_F(Agreement, TheQuestionsAreApart) {
  vote(board_, kMake, 1, true);
  vote(board_, kKeep, 1, false);
  EXPECT_TRUE(outcome(board_, kMake));
  EXPECT_FALSE(outcome(board_, kKeep));
}

TEST_F(Agreement, NobodyWaitsForARankThatDoesNotAttend) {
  write_card(page(), &JobCard::urgent_collectives, "yes");
  const std::uint64_t before = g_mover->now_ns.load();
  NcclCall call;
  call.made_by = {[](ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*) { return kNcclSuccess; },
                  [](ncclComm_t) { return kNcclSuccess; },
                  [](ncclComm_t, int*) { return kNcclSuccess; },
                  [](ncclComm_t, int*) { return kNcclSuccess; },
                  [] { return kNcclSuccess; },
                  [] { return kNcclSuccess; }};
  t_lane = 1;
  ncclComm_t comm = comm_at(0x1000);
  nccl::rules::init_rank(call, &comm, 2, ncclUniqueId{}, 0);
  EXPECT_EQ(g_mover->now_ns.load(), before);
  EXPECT_EQ(g_mover->told.back().first, wire::kEndShare) << "it did attend";
  EXPECT_GE(nccl::communicators::find(comm), 0) << "and would have had a twin";
  nccl::rules::end(NcclCall{}, comm);
}

TEST_F(Agreement, MoreOrFewerThanAllAreNotAll) {
  board_.registered.store(2);
  EXPECT_FALSE(all_attend(board_, 3));
  EXPECT_TRUE(all_attend(board_, 2));
  EXPECT_FALSE(all_attend(board_, 1));
}

}  // namespace
}  // namespace switchyard::shim
