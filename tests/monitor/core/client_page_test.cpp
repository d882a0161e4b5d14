// The monitor's side of a page whose other side is hostile.
#include "monitor/core/client_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tests/monitor/fake_shim.h"

namespace switchyard::monitor {
namespace {

using test::FakeShim;

std::unique_ptr<ClientPage> make(unsigned lanes = 2) {
  std::string why;
  auto page = ClientPage::make(lanes, why);
  EXPECT_NE(page, nullptr) << why;
  return page;
}

TEST(Page, ItsSizeIsSealed) {
  const auto page = make();
  EXPECT_EQ(::fcntl(page->memfd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(page->memfd(), 0), 0);
  EXPECT_NE(::ftruncate(page->memfd(), 1 << 20), 0);
}

TEST(Page, MagicComesLast) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  EXPECT_EQ(shim.page().head.magic, 0u);
  EXPECT_EQ(shim.page().head.layout_version, abi::kLayoutVersion);
  page->publish();
  EXPECT_EQ(shim.page().head.magic, abi::kMagic);
}

TEST(Page, NoMoreLanesThanThereIsRoomFor) { EXPECT_EQ(make(1000)->lane_count(), abi::kMaxGpus); }

TEST(Page, ALaneIsToldWhereItShallBeAndSaysWhereItIs) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  EXPECT_FALSE(page->place(1).movable);
  shim.lane(1).places = 3;
  shim.lane(1).uuid[15] = 9;
  EXPECT_TRUE(page->place(1).movable);
  EXPECT_EQ(page->place(1).uuid[15], 9);
  std::vector<std::array<std::uint8_t, 16>> machine(3);
  for (std::uint8_t gpu = 0; gpu < 3; ++gpu) machine[gpu].fill(gpu + 1);
  page->write_place(1, machine, 2);
  EXPECT_EQ(shim.lane(1).shall_be_on, 3u);
  EXPECT_EQ(shim.lane(0).shall_be_on, 0u);
  for (unsigned gpu = 0; gpu < 3; ++gpu) {
    for (const abi::Word64& word : shim.lane(gpu).machine_uuid)
      EXPECT_EQ(word, (gpu + 1) * 0x0101010101010101u);
  }
  EXPECT_EQ(shim.lane(3).machine_uuid[0], 0u);
  page->write_place(1, {machine[0]}, 0);
  EXPECT_EQ(shim.lane(1).machine_uuid[0], 0u) << "a machine with one GPU";
}

TEST(Page, TheCardIsOddWhileItIsWrittenAndEvenAfter) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  JobCard card{};
  set_text(card.name, "train");
  page->set_card(card);
  EXPECT_EQ(shim.page().card.seq % 2, 0u);
  EXPECT_GT(shim.page().card.seq, 0u);
  EXPECT_STREQ(shim.card().name, "train");
}

TEST(Page, GroupsAndContextsAreBounded) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  shim.lane().contexts = 0xffffffff;
  shim.lane().compute_groups = 0xffffffff;
  EXPECT_LE(page->report(0).contexts, 64u);
  EXPECT_LE(page->report(0).compute_groups, 64u);
}

TEST(Page, CreditIsNeverMoreThanWasGranted) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  shim.lane().credit_bytes = ~0ull;
  EXPECT_EQ(page->credit(0, 100), 100u);
  EXPECT_EQ(page->take_back(0, 1000, 100), 100u);
}

TEST(Page, TakesBackWhatIsThereAndNoMore) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  page->grant(0, 100);
  EXPECT_TRUE(shim.allocate(30));
  EXPECT_EQ(page->take_back(0, 90, 100), 70u);
  EXPECT_EQ(shim.lane().credit_bytes, 0u);
  EXPECT_EQ(page->take_back(0, 90, 30), 0u);
}

TEST(Page, TakingBackEndsWhileTheClientChangesTheWordAllTheTime) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  std::atomic<bool> stop{false};
  std::thread hostile([&] {
    while (!stop) shim.lane().credit_bytes.fetch_xor(0x5555);
  });
  for (int i = 0; i < 1000; ++i) EXPECT_LE(page->take_back(0, 10, 1000), 10u);
  stop = true;
  hostile.join();
}

TEST(Page, NothingIsLostWhenBothSidesMoveCredit) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  page->grant(0, 1000);
  std::atomic<bool> stop{false};
  std::thread client([&] {
    while (!stop) {
      if (shim.allocate(7)) shim.release(7);
    }
  });
  std::uint64_t taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    taken += page->take_back(0, 3, 1000);
    page->grant(0, taken);
    taken = 0;
  }
  stop = true;
  client.join();
  EXPECT_EQ(shim.lane().credit_bytes, 1000u);
}

TEST(Page, RingingNeverBlocksWhateverTheClientDoesToItsEnd) {
  const auto page = make();
  ASSERT_EQ(::fcntl(page->clients_doorbell(), F_SETFL, 0), 0);
  // Nobody reads: the queue is full after a few.
  for (int i = 0; i < 10'000; ++i) page->ring();
  char bell = 0;
  EXPECT_GE(::recv(page->clients_doorbell(), &bell, sizeof(bell), MSG_DONTWAIT), 0);
  page->drop_sent();
  page->ring();  // with nobody at the other end
}

TEST(Page, AnsweringNeverBlocksWhateverTheClientDoesToItsEnd) {
  const auto page = make();
  ASSERT_EQ(::fcntl(page->clients_wake(), F_SETFL, 0), 0);
  std::vector<Fd> none;
  EXPECT_FALSE(page->answer_wake(none));
  EXPECT_EQ(::fcntl(page->wake(), F_GETFL) & O_NONBLOCK, O_NONBLOCK) << "the flags are not shared";
}

TEST(Page, AWakeIsHeardOnce) {
  const auto page = make();
  std::vector<Fd> none;
  EXPECT_FALSE(page->answer_wake(none));
  const std::uint64_t one = 1;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(::write(page->clients_wake(), &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  EXPECT_TRUE(page->answer_wake(none));
  EXPECT_FALSE(page->answer_wake(none));
}

TEST(Page, SlicesAreThereBeforeTheirNumber) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  page->write_slices(1, {20, 50}, 7);
  EXPECT_EQ(shim.lane(1).slice_seq, 7u);
  EXPECT_EQ(shim.lane(1).compute_slice_us, 20u);
  EXPECT_EQ(shim.lane(1).copy_slice_us, 50u);
  std::uint64_t rung = 0;
  EXPECT_GE(::read(page->clients_doorbell(), &rung, sizeof(rung)), 0);
}

TEST(Page, ResidencyIsCopiedAndBounded) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  EXPECT_EQ(page->residency(1), ResidencyReport{});
  shim.swappable(100, 1);
  shim.leave(40, 1);
  EXPECT_EQ(page->residency(1).away_bytes(), 60u);
  EXPECT_EQ(page->residency(1).phase, abi::kLeaving);
  EXPECT_EQ(page->residency(0), ResidencyReport{});
  shim.residency(1).resident_bytes = 101;
  shim.residency(1).phase = 77;
  shim.residency(1).error = 77;
  shim.residency(1).held_threads = ~0u;
  const ResidencyReport odd = page->residency(1);
  EXPECT_EQ(odd.resident_bytes, 100u);
  EXPECT_EQ(odd.phase, abi::kResident);
  EXPECT_EQ(odd.error, abi::kSwapFailed);
  EXPECT_EQ(odd.held_threads, 65'535u);
}

TEST(Page, WhatAClientSaysOfItsMemoryIsCopiedByLane) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  EXPECT_FALSE(page->memory(1).swappable);
  shim.lane(1).attention |= abi::kSwappable;
  shim.memory(1).stays_bytes[static_cast<unsigned>(Stays::kPools)] = 5;
  shim.memory(1).moved_out_bytes = 6;
  shim.memory(1).moved_in_bytes = 7;
  shim.memory(1).spared_bytes = 8;
  shim.memory(1).times_out = 9;
  const MemoryReport said = page->memory(1);
  EXPECT_TRUE(said.swappable);
  EXPECT_EQ(said.stays[static_cast<unsigned>(Stays::kPools)], 5u);
  EXPECT_EQ(said.moved_out_bytes, 6u);
  EXPECT_EQ(said.moved_in_bytes, 7u);
  EXPECT_EQ(said.spared_bytes, 8u);
  EXPECT_EQ(said.times_out, 9u);
  EXPECT_EQ(page->memory(0).moved_out_bytes, 0u);
}

TEST(Page, ResidencyOrdersAreWrittenToTheirLane) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  page->write_residency(1, {true, 5, 7});
  EXPECT_EQ(shim.residency(1).limited, 1u);
  EXPECT_EQ(shim.residency(1).limit_bytes, 5u);
  EXPECT_EQ(shim.residency(1).host_limit_bytes, 7u);
  EXPECT_EQ(shim.residency(0).limited, 0u);
  page->write_residency(1, {false, 0, 7});
  EXPECT_EQ(shim.residency(1).limited, 0u);
}

// --- communicators ---

abi::Communicator& communicator(const FakeShim& shim, std::size_t at, std::uint32_t use) {
  abi::Communicator& to = shim.page().communicators[at];
  to.id = 7 + at;
  to.rank = 1;
  to.ranks = 4;
  to.launched = 10;
  to.use = use;
  shim.page().process.communicators_used = abi::kMostCommunicators;
  return to;
}

TEST(Page, ACommunicatorIsReadWhileItsSlotIsUsed) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  EXPECT_TRUE(page->communicators().empty());
  communicator(shim, 3, 2);
  const auto all = page->communicators();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].id, 10u);
  EXPECT_EQ(all[0].lane, 1u);
  EXPECT_EQ(all[0].rank, 1u);
  EXPECT_EQ(all[0].launched, 10u);
  shim.page().communicators[3].use = 0;
  EXPECT_TRUE(page->communicators().empty());
}

TEST(Page, ACommunicatorThatMakesNoSenseIsLeftOut) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  communicator(shim, 0, 3);  // a lane that isn't there
  communicator(shim, 1, 1).rank = 4;
  communicator(shim, 2, 1).id = 0;
  EXPECT_TRUE(page->communicators().empty());
  shim.page().process.unwatched = 0xffffffff;
  EXPECT_LE(page->unwatched_communicators(), 65535u);
}

TEST(Page, WhoHasEnteredALaunchAndNotLeftItIsLaunching) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  EXPECT_FALSE(page->cut().launching);
  shim.page().process.entered = 3;
  shim.page().process.left = 2;
  EXPECT_TRUE(page->cut().launching);
  shim.page().process.left = 3;
  EXPECT_FALSE(page->cut().launching);
  shim.page().process.left = 9;
  EXPECT_TRUE(page->cut().launching) << "what makes no sense is not there";
  shim.page().process.stopped = 1;
  EXPECT_TRUE(page->cut().stopped);
}

TEST(Page, ATargetIsForTheCommunicatorThatItWasMeantFor) {
  const auto page = make();
  const FakeShim shim(page->memfd());
  communicator(shim, 3, 1);
  const auto said = page->communicators().at(0);
  page->set_target(said, 0x1'0000'0005);
  EXPECT_EQ(shim.page().communicators[3].target, 5u);
  shim.page().communicators[3].id = 99;
  page->set_target(said, 6);
  EXPECT_EQ(shim.page().communicators[3].target, 5u);
}

}  // namespace
}  // namespace switchyard::monitor
