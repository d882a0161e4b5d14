// Which communicators are learnt, what the page says of them, and their ids.
#include "shim/nccl/communicators.h"

#include "shim/reset.h"
#include "tests/shim/nccl/nccl_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Communicators : public NcclTest {};

TEST_F(Communicators, ThePageSaysWhatItIs) {
  world_.device = 1;
  t_lane = 0;
  make(first_, 4, 3);
  EXPECT_EQ(shown(first_).rank.load(), 3u);
  EXPECT_EQ(shown(first_).ranks.load(), 4u);
  EXPECT_EQ(shown(first_).use.load(), 2u) << "lane 1";
  EXPECT_NE(shown(first_).id.load(), 0u);
  EXPECT_EQ(launched(first_), 0u);
}

TEST_F(Communicators, RanksOfOneIdHaveOneId) {
  make(first_, 4, 0, 'x');
  make(second_, 4, 1, 'x');
  EXPECT_EQ(shown(first_).id.load(), shown(second_).id.load());
  make(comm_at(0x3000), 4, 1, 'y');
  EXPECT_NE(shown(first_).id.load(), shown(comm_at(0x3000)).id.load());
}

TEST_F(Communicators, OneThatNcclRefusesIsNone) {
  make(first_, 4, 0, 'a', kNcclInvalidArgument);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Communicators, OneThatDoesNotBlockIsOne) {
  make(first_, 4, 0, 'a', kNcclInProgress);
  EXPECT_EQ(used(), 1u);
}

TEST_F(Communicators, AnEndedOneIsGoneAndItsHandleMayComeAgain) {
  make(first_);
  reduce(first_);
  nccl::rules::end(NcclCall{}, first_);
  EXPECT_EQ(nccl::communicators::find(first_), -1);
  EXPECT_EQ(used(), 0u);
  make(first_);
  EXPECT_EQ(launched(first_), 0u);
}

TEST_F(Communicators, TheTableIsOutBeforeNcclFreesTheHandle) {
  make(first_);
  NcclCall call;
  call.call = [this] {
    EXPECT_EQ(nccl::communicators::find(first_), -1);
    return kNcclSuccess;
  };
  nccl::rules::end(call, first_);
}

TEST_F(Communicators, MoreThanThereIsRoomForAreCounted) {
  for (std::uintptr_t i = 0; i < abi::kMostCommunicators + 2; ++i) make(comm_at(0x1000 + i * 64));
  EXPECT_EQ(used(), abi::kMostCommunicators);
  EXPECT_EQ(page().process.unwatched.load(), 2u);
  const ncclComm_t beyond = comm_at(0x1000 + (abi::kMostCommunicators + 1) * 64);
  EXPECT_EQ(reduce(beyond), kNcclSuccess);
  nccl::rules::end(NcclCall{}, beyond);
  EXPECT_EQ(page().process.unwatched.load(), 1u);
  // A slot that was left is found again, behind others that have ended.
  nccl::rules::end(NcclCall{}, comm_at(0x1000));
  make(first_);
  EXPECT_EQ(used(), abi::kMostCommunicators);
}

TEST_F(Communicators, TheLowestSlotsAreTakenAndThePageSaysHowMany) {
  const auto comm = [](std::uintptr_t i) { return comm_at(0x1000 + i * 64); };
  for (std::uintptr_t i = 0; i < 100; ++i) make(comm(i));
  EXPECT_EQ(page().process.communicators_used.load(), 100u);
  for (std::uintptr_t i = 0; i < 100; ++i) {
    EXPECT_EQ(nccl::communicators::find(comm(i)), static_cast<int>(i));
    EXPECT_EQ(nccl::communicators::handle(static_cast<int>(i)), comm(i));
  }
  nccl::rules::end(NcclCall{}, comm(7));
  nccl::rules::end(NcclCall{}, comm(70));
  make(comm(100));
  EXPECT_EQ(nccl::communicators::find(comm(100)), 7);
  EXPECT_EQ(page().process.communicators_used.load(), 100u);
}

// An ended communicator leaves no marks that a later search would pass for ever.
TEST_F(Communicators, ASearchStaysShortHoweverManyHaveEnded) {
  make(first_);
  for (std::uintptr_t i = 0; i < 20'000; ++i) {
    make(comm_at(0x100000 + i * 64));
    nccl::rules::end(NcclCall{}, comm_at(0x100000 + i * 64));
  }
  unsigned marked = 0;
  for (const auto& place : nccl::communicators::g_places) marked += place.comm.load() != nullptr;
  EXPECT_EQ(marked, 1u);
  EXPECT_EQ(nccl::communicators::find(first_), 0);
}

TEST_F(Communicators, AGrownOneAndItsChildrenAreCountedAndNotWatched) {
  const auto grow = [](ncclComm_t out, ncclResult_t result) {
    return nccl::rules::grow(answering(result), nullptr, 2, nullptr, 1, &out, nullptr);
  };
  EXPECT_EQ(grow(first_, kNcclSuccess), kNcclSuccess);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(page().process.unwatched.load(), 1u);
  EXPECT_EQ(grow(second_, kNcclInvalidArgument), kNcclInvalidArgument);
  EXPECT_EQ(page().process.unwatched.load(), 1u);
  ncclComm_t child = second_;
  nccl::rules::split(NcclCall{}, first_, 0, 0, &child, nullptr);
  EXPECT_EQ(page().process.unwatched.load(), 2u);
  nccl::rules::end(NcclCall{}, second_);
  EXPECT_EQ(page().process.unwatched.load(), 1u) << "its parent lives";
  ncclComm_t smaller = second_;
  nccl::rules::shrink(NcclCall{}, first_, nullptr, 0, &smaller, nullptr, 0);
  EXPECT_EQ(page().process.unwatched.load(), 2u);
  nccl::rules::end(NcclCall{}, first_);
  nccl::rules::end(NcclCall{}, second_);
  EXPECT_EQ(page().process.unwatched.load(), 0u);
}

TEST_F(Communicators, AChildWhoseHandleComesLaterIsCountedAndNotWatched) {
  make(first_, 2, 0, 'a', kNcclInProgress);
  ncclComm_t child = nullptr;
  nccl::rules::split(NcclCall{}, first_, 0, 0, &child, nullptr);
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(page().process.unwatched.load(), 1u);
  nccl::rules::end(NcclCall{}, first_);
  EXPECT_EQ(page().process.unwatched.load(), 1u) << "the child lives";
  nccl::rules::end(NcclCall{}, second_);
  EXPECT_EQ(page().process.unwatched.load(), 0u);
}

TEST_F(Communicators, MoreThanAGroupHasRoomForAreCountedOnceItEnds) {
  ncclComm_t comms[nccl::kMostExpected + 2];
  for (std::uintptr_t at = 0x1000; ncclComm_t & comm : comms) comm = comm_at(at += 64);
  const auto make_many = [&](ncclResult_t result) {
    start();
    for (ncclComm_t& comm : comms) nccl::rules::init_rank(NcclCall{}, &comm, 2, ncclUniqueId{}, 0);
    EXPECT_EQ(page().process.unwatched.load(), 0u);
    finish(result);
  };
  make_many(kNcclInternalError);
  EXPECT_EQ(page().process.unwatched.load(), 0u);
  make_many(kNcclSuccess);
  EXPECT_EQ(used(), nccl::kMostExpected);
  EXPECT_EQ(page().process.unwatched.load(), 2u);
}

TEST_F(Communicators, AllOfOneProcessHaveAnIdOfTheirOwn) {
  ncclComm_t comms[] = {first_, second_};
  const int devices[] = {3, 1};
  nccl::rules::init_all(NcclCall{}, comms, 2, devices);
  EXPECT_EQ(shown(first_).id.load(), shown(second_).id.load());
  EXPECT_EQ(shown(first_).use.load(), 4u);
  EXPECT_EQ(shown(second_).use.load(), 2u);
  EXPECT_EQ(shown(second_).rank.load(), 1u);
  ncclComm_t more[] = {comm_at(0x3000), comm_at(0x4000)};
  nccl::rules::init_all(NcclCall{}, more, 2, nullptr);
  EXPECT_NE(shown(more[0]).id.load(), shown(first_).id.load());
}

TEST_F(Communicators, OneOfAGpuWithoutALaneIsCountedAndNotWatched) {
  ncclComm_t comms[] = {first_, second_, comm_at(0x3000)};
  const int devices[] = {abi::kMaxGpus - 1, abi::kMaxGpus, abi::kMaxGpus + 40};
  nccl::rules::init_all(NcclCall{}, comms, 3, devices);
  EXPECT_EQ(shown(first_).use.load(), abi::kMaxGpus);
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(page().process.unwatched.load(), 2u);
  EXPECT_EQ(nccl::communicators::find(second_), -1);
  for (const ncclComm_t each : comms) nccl::rules::end(NcclCall{}, each);
  EXPECT_EQ(page().process.unwatched.load(), 0u);
}

TEST_F(Communicators, ASplitIsNamedByItsParentItsNumberAndItsColour) {
  const auto split = [](ncclComm_t parent, int color, ncclComm_t child) {
    ncclComm_t out = child;
    nccl::rules::split(NcclCall{}, parent, color, 0, &out, nullptr);
    return color < 0 ? 0 : shown(child).id.load();
  };
  make(first_, 4, 0, 'x');
  make(second_, 4, 1, 'x');  // the same in another process
  const auto a = split(first_, 0, comm_at(0x3000));
  EXPECT_EQ(split(second_, 0, comm_at(0x4000)), a);
  EXPECT_NE(split(first_, 0, comm_at(0x5000)), a) << "the second split";
  EXPECT_EQ(split(second_, -1, comm_at(0x6000)), 0u);
  EXPECT_EQ(nccl::communicators::find(comm_at(0x6000)), -1) << "it has no part in it";
  const auto third = split(first_, 1, comm_at(0x7000));
  EXPECT_EQ(split(second_, 1, comm_at(0x8000)), third) << "one without a child is counted, too";
  EXPECT_NE(split(second_, 2, comm_at(0x9000)), third);
}

TEST_F(Communicators, AChildIsAskedWhoItIsAtItsFirstOperation) {
  make(first_);
  ncclComm_t child = second_;
  nccl::rules::split(NcclCall{}, first_, 0, 0, &child, nullptr);
  EXPECT_EQ(shown(second_).ranks.load(), 0u);
  reduce(second_);
  EXPECT_EQ(shown(second_).ranks.load(), 0u) << "not ready yet";
  NcclCall ready;
  ready.rank = 1;
  ready.ranks = 3;
  reduce(second_, ready);
  EXPECT_EQ(shown(second_).ranks.load(), 3u);
  EXPECT_EQ(shown(second_).rank.load(), 1u);
  EXPECT_EQ(launched(second_), 2u);
}

TEST_F(Communicators, OneThatIsMadeInAGroupIsThereWhenItEnds) {
  ncclUniqueId id{};
  ncclComm_t out = nullptr;
  start();
  nccl::rules::init_rank(NcclCall{}, &out, 2, id, 0);
  EXPECT_EQ(used(), 0u);
  out = first_;  // NCCL may write the handle only now
  finish();
  EXPECT_EQ(launched(first_), 0u);
  EXPECT_EQ(used(), 1u);
}

TEST_F(Communicators, AFreshPageGetsThemAllAndWhatIsCountedMeanwhile) {
  make(first_, 4, 2);
  make(second_);
  reduce(first_);
  nccl::rules::end(NcclCall{}, second_);
  static abi::Page fresh;
  nccl::communicators::carry_over(fresh);
  const auto slot = static_cast<std::size_t>(nccl::communicators::find(first_));
  EXPECT_EQ(fresh.communicators[slot].launched.load(), 1u);
  EXPECT_EQ(fresh.communicators[slot].rank.load(), 2u);
  EXPECT_EQ(fresh.communicators[slot].use.load(), 1u);
  EXPECT_EQ(fresh.communicators[slot].last_kind.load(),
            static_cast<std::uint32_t>(Collective::kAllReduce));
  // Between the copy and the new page: the new one knows nothing of it.
  reduce(first_);
  shown(first_).launched.store(1);
  make(second_);
  shown(second_).use.store(0);
  nccl::communicators::tell();
  EXPECT_EQ(launched(first_), 2u);
  EXPECT_EQ(shown(second_).use.load(), 1u);
}

TEST_F(Communicators, AForkedChildHasNone) {
  make(first_);
  run_resets();
  EXPECT_EQ(nccl::communicators::find(first_), -1);
}

}  // namespace
}  // namespace switchyard::shim
