#include "shim/memory/ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "shim/client/process.h"

namespace switchyard::shim::ledger {
namespace {

class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    begin_process();  // or the first charge that is given back would begin it, which clears the ledger
    clear();
  }
};

TEST_F(Ledger, ANoteIsTakenOutOnce) {
  Charge charge;
  ASSERT_TRUE(note(NoteKind::kPointer, 0x7f0000000000, {.lane = 3, .bytes = 42, .owner = 7}));
  ASSERT_TRUE(take(NoteKind::kPointer, 0x7f0000000000, charge));
  EXPECT_EQ(charge.lane, 3);
  EXPECT_EQ(charge.bytes, 42u);
  EXPECT_EQ(charge.owner, 7u);
  EXPECT_FALSE(take(NoteKind::kPointer, 0x7f0000000000, charge));
}

TEST_F(Ledger, KindsAreSpacesApart) {
  Charge charge;
  note(NoteKind::kPointer, 1, {.lane = 0, .bytes = 10});
  note(NoteKind::kHandle, 1, {.lane = 0, .bytes = 20});
  EXPECT_FALSE(look(NoteKind::kArray, 1, charge));
  ASSERT_TRUE(look(NoteKind::kHandle, 1, charge));
  EXPECT_EQ(charge.bytes, 20u);
  ASSERT_TRUE(take(NoteKind::kPointer, 1, charge));
  EXPECT_EQ(charge.bytes, 10u);
}

TEST_F(Ledger, ItGrowsAndShrinksLikeAMap) {
  std::map<std::uint64_t, std::uint64_t> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t key = (random() % 20000) << 21;  // as addresses: low bits are all zero
    if (random() % 2 == 0) {
      ASSERT_TRUE(note(NoteKind::kPointer, key, {.lane = 0, .bytes = key + 1}));
      model[key] = key + 1;
    } else {
      Charge charge;
      ASSERT_EQ(take(NoteKind::kPointer, key, charge), model.erase(key) == 1);
    }
    ASSERT_EQ(size(), model.size());
  }
  for (const auto& [key, bytes] : model) {
    Charge charge;
    ASSERT_TRUE(take(NoteKind::kPointer, key, charge));
    ASSERT_EQ(charge.bytes, bytes);
  }
  EXPECT_EQ(size(), 0u);
}

TEST_F(Ledger, WhatAContextOwnedGoesWithIt) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    note(NoteKind::kPointer, i, {.lane = 0, .bytes = 1, .owner = i % 2});
    note(NoteKind::kArray, i, {.lane = 1, .bytes = 1, .owner = i % 2});
    note(NoteKind::kHandle, i, {.lane = 0, .bytes = 1});
  }
  EXPECT_EQ(take_owned(0, 1), 500u);
  EXPECT_EQ(take_owned(0, 1), 0u);
  EXPECT_EQ(take_owned(1, 0), 500u);
  EXPECT_EQ(take_owned(0, 0), 500u);
  EXPECT_EQ(size(), 1500u);
}

// Notes whose places collide move up when one of them goes.
TEST_F(Ledger, NoneOfAContextsNotesIsPassedOver) {
  constexpr std::uint64_t kNotes = 2000;
  std::mt19937_64 random(11);
  for (std::uint64_t i = 0; i < kNotes; ++i) {
    note(NoteKind::kPointer, random(), {.lane = 0, .bytes = 1, .owner = 7});
  }
  ASSERT_EQ(size(), kNotes);
  EXPECT_EQ(take_owned(0, 7), kNotes);
  EXPECT_EQ(size(), 0u);
}

TEST_F(Ledger, AHandleLivesWhileItIsReferredToOrMapped) {
  Charge charge;
  bool gone = true;
  note(NoteKind::kHandle, 9, {.lane = 0, .bytes = 5, .handles = 1});
  ASSERT_TRUE(adjust(9, 0, 2, charge, gone));
  ASSERT_TRUE(adjust(9, -1, 0, charge, gone));
  EXPECT_FALSE(gone);
  ASSERT_TRUE(adjust(9, 0, -1, charge, gone));
  EXPECT_FALSE(gone);
  ASSERT_TRUE(adjust(9, 0, -1, charge, gone));
  EXPECT_TRUE(gone);
  EXPECT_EQ(charge.bytes, 5u);
  EXPECT_FALSE(adjust(9, 1, 0, charge, gone));
}

TEST_F(Ledger, APoolsEndMakesItsPointersPlainOnes) {
  for (std::uint64_t i = 0; i < 3000; ++i) {
    note(NoteKind::kPooled, i << 9, {.bytes = 2, .owner = i % 3});
  }
  EXPECT_EQ(orphan_pooled(1, 5), 2000u);
  Charge charge;
  EXPECT_TRUE(look(NoteKind::kPointer, 1 << 9, charge));
  EXPECT_EQ(charge.lane, 5);
  EXPECT_TRUE(look(NoteKind::kPooled, 2 << 9, charge));
  EXPECT_EQ(size(), 3000u);
}

}  // namespace
}  // namespace switchyard::shim::ledger
