// What the library of a released version says, as this monitor hears it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "monitor/core/client_page.h"
#include "monitor/core/frames.h"
#include "monitor/core/job_settings.h"
#include "tests/support/card.h"
#include "tests/support/recorded.h"

namespace switchyard::monitor {
namespace {

// Each released version that speaks sections.
class Replay : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string file(const std::string& name) { return recorded(GetParam(), name); }
  static wire::Hello hello() {
    std::string why;
    const auto hello = read_hello(file("hello"), why);
    EXPECT_TRUE(hello) << why;
    return hello.value_or(wire::Hello{});
  }
  // A page for that library, and what it has written there.
  static std::unique_ptr<ClientPage> page() {
    std::string why;
    const auto directory = PageDirectory::read(hello(), why);
    EXPECT_TRUE(directory) << why;
    auto page = ClientPage::make(2, why, directory.value_or(PageDirectory()));
    void* mapped =
        ::mmap(nullptr, page->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, page->memfd(), 0);
    EXPECT_TRUE(put_image(file("page"), static_cast<char*>(mapped), page->bytes()));
    ::munmap(mapped, page->bytes());
    return page;
  }
};

TEST_P(Replay, AHelloSaysWhoJoins) {
  const wire::Hello said = hello();
  EXPECT_EQ(other_layout(file("hello")), 0u);
  EXPECT_EQ(said.flags, wire::kRejoin);
  EXPECT_EQ(said.pid, 4711u);
  EXPECT_EQ(said.lane_count, 2u);
  EXPECT_EQ(said.paused, 1u);
  EXPECT_EQ(said.pause_until_ns, 123'456'789u);
  EXPECT_STREQ(said.process, "python3");
  EXPECT_EQ(said.uuid[1][15], 0xA1);
  EXPECT_EQ(said.used_bytes[1], 1001u);
}

TEST_P(Replay, ACardHasItsSettingsAndCarriesTheOthers) {
  const std::string text = file("card");
  CardText card;
  ASSERT_EQ(text.size(), sizeof(card));
  std::memcpy(card, text.data(), sizeof(card));
  std::string why;
  const auto knobs = parse_card(card_in(card), why);
  ASSERT_TRUE(knobs) << why;
  EXPECT_EQ(knobs->name, "train");
  EXPECT_EQ(knobs->priority, Priority::kHigh);
  EXPECT_EQ(knobs->share.weight, 2.5);
  EXPECT_EQ(knobs->limit, 0.3);
  EXPECT_EQ(knobs->deadline, std::chrono::minutes(90));
  EXPECT_EQ(knobs->memory, MemoryQuota{20ull << 30});
  EXPECT_EQ(knobs->on_oom, OnOom::kWait);
  EXPECT_EQ(knobs->idle_release.after, std::chrono::minutes(10));
  EXPECT_EQ(knobs->park, Park::kAuto);
  EXPECT_EQ(knobs->guard, 0.05);
  EXPECT_EQ(knobs->gradient_noise, 10u);
  EXPECT_STREQ(card_in(card).unknown, "later=x y");
}

TEST_P(Replay, RequestsAreWhatTheyWere) {
  const auto charge = read_charge(file("charge"));
  ASSERT_TRUE(charge);
  EXPECT_EQ(charge->lane, 1u);
  EXPECT_EQ(charge->bytes, 4096u);
  const auto share = read_share(file("share"));
  ASSERT_TRUE(share);
  EXPECT_EQ(share->key, (wire::Key{{1, 2}}));
  EXPECT_EQ(share->first, 3u);
  EXPECT_EQ(share->total, 4u);
}

TEST_P(Replay, APageSaysWhatItsLanesDo) {
  const auto said = page();
  EXPECT_EQ(said->credit(1, ~0ull), 1'000'001u);
  EXPECT_EQ(said->used_bytes(1), 601u);
  const LaneReport lane = said->report(1);
  EXPECT_EQ(lane.launches, 101u);
  EXPECT_EQ(lane.graph_launches, 201u);
  EXPECT_EQ(lane.copies, 301u);
  EXPECT_EQ(lane.link_bytes, 401u);
  EXPECT_EQ(lane.device_bytes, 501u);
  EXPECT_EQ(lane.contexts, 1u);
  EXPECT_EQ(lane.slice_applied_seq, 9u);
  EXPECT_EQ(lane.compute_slice_applied_us, 2048u);
  EXPECT_EQ(lane.refusals, 3u);
  const GateReport gate = said->gate(1);
  EXPECT_EQ(gate.state, abi::kGateReady);
  EXPECT_EQ(gate.waits, 11u);
  EXPECT_EQ(gate.progress, 12u);
  EXPECT_TRUE(gate.done);
  const ResidencyReport residency = said->residency(1);
  EXPECT_EQ(residency.phase, abi::kAbsent);
  EXPECT_EQ(residency.total_bytes, 7001u);
  EXPECT_EQ(residency.host_bytes, 8000u);
  EXPECT_EQ(residency.answered, 5u);
  const MemoryReport memory = said->memory(1);
  EXPECT_TRUE(memory.swappable);
  EXPECT_EQ(memory.moved_out_bytes, 7000u);
  EXPECT_EQ(memory.times_out, 1u);
  EXPECT_EQ(memory.contexts, abi::kContextsMayLeave);
  EXPECT_TRUE(said->place(1).movable);
  EXPECT_EQ(said->place(1).uuid[0], 0xA1);
  EXPECT_EQ(said->unpinned(1), 7u);
  EXPECT_TRUE(said->precopies(1));
}

TEST_P(Replay, APageSaysWhatItsCommunicatorsDo) {
  const auto said = page();
  const auto all = said->communicators();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].slot, 99u);
  EXPECT_EQ(all[1].id, 176u);
  EXPECT_EQ(all[1].lane, 1u);
  EXPECT_EQ(all[1].rank, 1u);
  EXPECT_EQ(all[1].ranks, 4u);
  EXPECT_EQ(all[1].launched, 40u);
  EXPECT_FALSE(said->cut().launching);
  EXPECT_EQ(said->collectives()[1], 40u);
  EXPECT_EQ(said->collective_bytes()[1], 4000u);
  EXPECT_EQ(said->launching_thread(), 4712u);
  const auto operation = said->operation(all[1], 40);
  ASSERT_TRUE(operation);
  EXPECT_EQ(operation->bytes, 100u);
  RecordCursor records, timings, normed;
  std::vector<RecordReport> out;
  std::vector<NormReport> norms;
  EXPECT_EQ(said->read_records(records, out), 1u);
  EXPECT_EQ(said->read_timings(timings, out), 1u);
  EXPECT_EQ(out.size(), 2u);
  EXPECT_EQ(said->read_norms(normed, norms), 1u);
  ASSERT_EQ(norms.size(), 1u);
  EXPECT_EQ(norms[0].what % abi::kMostCommunicators, 99u);
  EXPECT_NE(norms[0].what & abi::kNormSummed, 0u);
  EXPECT_EQ(norms[0].before, 1.5);
  EXPECT_EQ(norms[0].after, 6.0);
}

INSTANTIATE_TEST_SUITE_P(Releases, Replay, ::testing::Values("0.2.0"), [](const auto& version) {
  std::string name = std::string("V") + version.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace switchyard::monitor
