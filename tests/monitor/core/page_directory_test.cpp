// Pages of other versions' libraries: places, strides and sections that differ.
#include "monitor/core/page_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "monitor/core/client_page.h"
#include "tests/monitor/fake_shim.h"

namespace switchyard::monitor {
namespace {

using abi::SectionId;
using test::FakeShim;

wire::Hello hello() { return test::hello_of({}, 2); }

abi::Section& section(wire::Hello& of, SectionId id) {
  return *std::find_if(std::begin(of.sections), std::end(of.sections),
                       [id](const abi::Section& each) { return each.id == id; });
}

std::string refused(const wire::Hello& said) {
  std::string why;
  EXPECT_FALSE(PageDirectory::read(said, why));
  return why;
}

std::unique_ptr<ClientPage> page_of(const wire::Hello& said) {
  std::string why;
  const auto directory = PageDirectory::read(said, why);
  EXPECT_TRUE(directory) << why;
  return directory ? ClientPage::make(said.lane_count, why, *directory) : nullptr;
}

// The bytes of a page, as a client maps them.
class Bytes {
 public:
  explicit Bytes(const ClientPage& page)
      : bytes_(page.bytes()),
        at_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, page.memfd(), 0)) {}
  Bytes(const Bytes&) = delete;
  ~Bytes() { ::munmap(at_, bytes_); }
  template <typename Element>
  Element& element(const abi::Section& of, unsigned at) const {
    return *reinterpret_cast<Element*>(static_cast<char*>(at_) + of.offset +
                                       std::size_t{of.stride} * at);
  }
  abi::Head& head() const { return *static_cast<abi::Head*>(at_); }

 private:
  std::size_t bytes_;
  void* at_;
};

TEST(PageDirectory, APageNamesWhatIsServedAndThePlacesThatTheClientHas) {
  const auto page = page_of(hello());
  const FakeShim shim(page->memfd());
  EXPECT_EQ(shim.page().head.sections, std::size(abi::kSections));
  for (const abi::Section& mine : abi::kSections) {
    EXPECT_NE(std::find(std::begin(shim.page().directory), std::end(shim.page().directory), mine),
              std::end(shim.page().directory))
        << static_cast<unsigned>(mine.id);
  }
}

TEST(PageDirectory, AStrideMayGrowAndAPlaceMayBeAnother) {
  wire::Hello said = hello();
  said.page_bytes = 256 * 1024;
  section(said, SectionId::kLanes) = {SectionId::kLanes, 131072, 384, 16};
  section(said, SectionId::kRecords) = {SectionId::kRecords, 147456, 24, 1024};
  const auto page = page_of(said);
  const Bytes bytes(*page);
  page->set_quota(1, 77);
  EXPECT_EQ(bytes.element<abi::Lane>(section(said, SectionId::kLanes), 1).quota_bytes, 77u);
  bytes.element<abi::Lane>(section(said, SectionId::kLanes), 1).launches = 5;
  EXPECT_EQ(page->report(1).launches, 5u);
  auto& process = bytes.element<abi::Process>(section(said, SectionId::kProcess), 0);
  for (std::uint32_t number = 1; number <= 1000; ++number) {
    auto& record = bytes.element<abi::Record>(section(said, SectionId::kRecords), number - 1);
    record.what = number;
    record.number = number;
    process.recorded = number;
  }
  RecordCursor cursor;
  std::vector<RecordReport> out;
  EXPECT_EQ(page->read_records(cursor, out), 1000u);
  ASSERT_EQ(out.size(), 1000u);
  EXPECT_EQ(out.back().what, 1000u);
}

TEST(PageDirectory, ASectionThatIsNotKnownIsSkipped) {
  wire::Hello said = hello();
  said.sections[said.section_count++] = {SectionId{999}, abi::kSectionsOffset, 8, 4};
  const auto page = page_of(said);
  ASSERT_NE(page, nullptr);
  EXPECT_EQ(Bytes(*page).head().sections, std::size(abi::kSections));
}

TEST(PageDirectory, AFeatureWithoutItsSectionIsOff) {
  wire::Hello said = hello();
  for (const SectionId id : {SectionId::kMemories, SectionId::kResidencies, SectionId::kGates,
                             SectionId::kRecords, SectionId::kTimings, SectionId::kNorms,
                             SectionId::kNormOrders, SectionId::kCommunicators}) {
    section(said, id).id = SectionId{1000 + static_cast<std::uint32_t>(id)};
  }
  const auto page = page_of(said);
  ASSERT_NE(page, nullptr);
  const Bytes bytes(*page);
  EXPECT_EQ(bytes.head().sections, 3u);
  auto& process = bytes.element<abi::Process>(section(said, SectionId::kProcess), 0);
  process.recorded = process.timed = process.normed = process.communicators_used = 9;
  page->write_gate(0, {.closed = abi::kClosedByTurn});
  page->write_residency(0, {.limited = true});
  page->write_norm_order({.slot = 3}, {});
  page->set_target({.slot = 3}, 7);
  EXPECT_EQ(page->gate(0).state, abi::kGateUnready);
  EXPECT_EQ(page->residency(0).total_bytes, 0u);
  EXPECT_EQ(page->memory(0).times_out, 0u);
  EXPECT_TRUE(page->communicators().empty());
  RecordCursor cursor;
  std::vector<RecordReport> records;
  std::vector<NormReport> norms;
  EXPECT_EQ(page->read_records(cursor, records), 0u);
  EXPECT_EQ(page->read_timings(cursor, records), 0u);
  EXPECT_EQ(page->read_norms(cursor, norms), 0u);
  page->write_pause(true, 5);
  EXPECT_EQ(bytes.head().paused, 1u);
  EXPECT_EQ(bytes.head().pause_until_ns, 5u);
}

TEST(PageDirectory, WhatTheClientWritesThereLaterIsNotRead) {
  const auto page = page_of(hello());
  const FakeShim shim(page->memfd());
  std::fill(std::begin(shim.page().directory), std::end(shim.page().directory),
            abi::Section{SectionId::kLanes, 0xfffffff0, 0xfffffff0, 0xfffffff0});
  shim.page().head.sections = 0xffffffff;
  shim.page().head.page_bytes = 0xffffffff;
  shim.lane(1).launches = 3;
  EXPECT_EQ(page->report(1).launches, 3u);
}

TEST(PageDirectory, OnlySlotsThatWereUsedAreLookedAt) {
  const auto page = page_of(hello());
  const FakeShim shim(page->memfd());
  for (const unsigned slot : {0u, 99u, 1023u}) shim.joins_communicator(slot + 1, 0, 2, slot);
  EXPECT_EQ(page->communicators().size(), 3u);
  shim.page().process.communicators_used = 100;
  EXPECT_EQ(page->communicators().size(), 2u);
  shim.page().process.communicators_used = 0xffffffff;
  EXPECT_EQ(page->communicators().size(), 3u);
}

TEST(PageDirectory, WhatMakesNoSenseIsRefusedByName) {
  const auto with = [](auto spoil) {
    wire::Hello said = hello();
    spoil(said);
    return refused(said);
  };
  const auto lanes = [&](auto spoil) {
    return with([&](wire::Hello& said) { spoil(section(said, SectionId::kLanes)); });
  };
  EXPECT_NE(with([](wire::Hello& said) { said.page_bytes = 0; }).find("0 bytes"),
            std::string::npos);
  EXPECT_NE(with([](wire::Hello& said) { said.page_bytes = 4097; }), "");
  EXPECT_NE(with([](wire::Hello& said) { said.page_bytes = 2 << 20; }), "");
  EXPECT_NE(with([](wire::Hello& said) { said.page_bytes = 4096; }), "");
  EXPECT_NE(with([](wire::Hello& said) { said.section_count = 33; }), "");
  EXPECT_NE(with([](wire::Hello& said) { said.section_count = 2; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.offset = 0; }), "") << "over the head";
  EXPECT_NE(lanes([](abi::Section& at) { at.offset += 8; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.stride = 0; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.stride = 256; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.stride += 8; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.count = 0x10000000; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.offset = 0xffffffc0; }), "");
  EXPECT_NE(lanes([](abi::Section& at) { at.count = 1; }), "") << "the client has two GPUs";
  EXPECT_NE(lanes([](abi::Section& at) { at.id = SectionId::kGates; }), "");
}

// Whatever is named: refused, or a page in which nothing is reached that is not its own.
TEST(PageDirectory, RandomPlacesAreRefusedOrWithinThePage) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    wire::Hello said = hello();
    for (int changes = 0; changes < 3; ++changes) {
      abi::Section& at = said.sections[random() % said.section_count];
      const auto word = static_cast<std::uint32_t>(random() >> (32 + random() % 32));
      switch (random() % 4) {
        case 0:
          at.offset = word / 64 * 64;
          break;
        case 1:
          at.stride = word / 64 * 64;
          break;
        case 2:
          at.count = word;
          break;
        default:
          at.id = SectionId{word % 14};
          break;
      }
    }
    std::string why;
    const auto directory = PageDirectory::read(said, why);
    if (!directory) {
      EXPECT_NE(why, "");
      continue;
    }
    for (const abi::Section& each : directory->served()) EXPECT_TRUE(each.fits(said.page_bytes));
  }
}

}  // namespace
}  // namespace switchyard::monitor
