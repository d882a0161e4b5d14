// Laws over random histories: what a listing says, and what the sums count, is one thing.
#include <gtest/gtest.h>

#include <random>

#include "monitor/control/listing.h"
#include "monitor/core/lanes.h"
#include "monitor/status/changes.h"
#include "tests/monitor/plants.h"
#include "tests/monitor/rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

using status::Code;

// Three jobs on two GPUs, one of two processes. Something happens to one of them, then time passes.
class StatusLaws : public ::testing::Test {
 protected:
  struct Seen {
    std::map<std::pair<JobKey, std::size_t>, std::map<Code, Time>> times;
    std::map<std::pair<JobKey, stalls::Hold>, Time> waits;
  };

  Joined starts(const char* name, const char* limit, unsigned lanes) {
    Joined joined =
        rig.runs({.job = name, .name = name, .limit = limit, .swappable = "yes"}, lanes);
    joined.shim.ready_gate();
    joined.shim.swappable(64 * kMiB);
    return joined;
  }
  Job& job(const Joined& who) { return *rig.monitor.registry().find(who.client->job); }

  void asks(Job& job, unsigned what) {
    if (what == 0) rig.monitor.pause(job, {}, rig.now);
    if (what == 1) rig.monitor.resume(job, rig.now);
    if (what == 2) rig.monitor.swap_out(job, rig.now);
    if (what == 3) rig.monitor.swap_in(job, rig.now);
  }
  // As it was told to.
  void memory_moves(JobKey key) {
    for (const Joined& each : all) {
      for (const auto& [lane, state] : each.client->lanes) {
        if (each.client->job != key) continue;
        if (each.shim.told_to_leave(lane)) {
          each.shim.be_absent(lane);
        } else {
          each.shim.be_resident(abi::kSwapFine, lane);
        }
      }
    }
  }
  // What its process does, or somebody to it.
  void happens(std::mt19937& random) {
    const Joined& who = all[random() % all.size()];
    const unsigned at = random() % static_cast<unsigned>(who.client->lanes.size());
    switch (random() % 14) {
      case 0:
        who.shim.gate(at).held_threads = random() % 3;
        break;
      case 1:
        who.shim.submit(0, at);
        break;
      case 2:
        who.shim.complete(at);
        break;
      case 3:
        who.shim.launch(at);
        break;
      case 4:
      case 5:
        asks(job(who), random() % 4);
        break;
      case 6:
        Plants::in(who.client->lanes.at(at).wait) = {.since = random() % 2 == 0 ? Time{0} : rig.now,
                                                     .lacks_bytes = random() % kGiB};
        break;
      case 7:
        who.client->standing.why = static_cast<Standstill>(random() % 6);
        Plants::in(job(who).stands) = who.client->standing.why != Standstill::kNone;
        break;
      case 8:
        Plants::in(job(who).restraint).held = random() % 2 == 0;
        break;
      case 9:
        Plants::in(job(who).gang).stage = static_cast<GangHold::Stage>(random() % 7);
        break;
      case 10: {
        policy::Rules rules;
        rules.kind = random() % 2 == 0 ? policy::Kind::kExclusive : policy::Kind::kPriority;
        rig.monitor.scheduler().choose(rules);
        break;
      }
      case 11:
        memory_moves(who.client->job);
        break;
      case 12:
        who.shim.leave(16 * kMiB, at);
        break;
      default:
        break;
    }
  }
  Seen seen() {
    Seen out;
    for (const auto& [key, each] : rig.monitor.registry().jobs()) {
      const Usage::Sums& sums = rig.monitor.statistics().usage.of(each);
      for (const auto& [gpu, times] : sums.times) out.times[{key, gpu}] = times;
      for (const auto& [hold, span] : sums.waits) out.waits[{key, hold}] = span;
    }
    return out;
  }
  // Only the time of the listed state and reason grew.
  void expect_one_truth(const std::map<JobKey, status::JobStatus>& listed, const Seen& before,
                        const Seen& after) {
    for (const auto& [key, said] : listed) {
      for (const auto& [gpu, on] : said.gpus) {
        const std::pair place{key, gpu};
        for (const auto& [code, span] : after.times.at(place)) {
          const auto earlier = before.times.contains(place) && before.times.at(place).contains(code)
                                   ? before.times.at(place).at(code)
                                   : Time{0};
          if (span == earlier) continue;
          ASSERT_EQ(code, on.code)
              << key_of(code.state) << " grew while " << text_of(on, "") << " was listed";
        }
      }
    }
    for (const auto& [place, span] : after.waits) {
      const auto& [key, hold] = place;
      if (before.waits.contains(place) && before.waits.at(place) == span) continue;
      const status::JobStatus& said = listed.at(key);
      const bool told =
          hold_of(said.job.code) == hold ||
          std::any_of(said.gpus.begin(), said.gpus.end(),
                      [hold = hold](const auto& on) { return hold_of(on.status.code) == hold; });
      ASSERT_TRUE(told) << "waits grew by " << stalls::key_of(hold) << " while "
                        << text_of(said.job, "") << " was listed";
    }
  }
  void expect_all_of_life(unsigned seed) {
    for (const auto& [key, each] : rig.monitor.registry().jobs()) {
      for (const auto& [gpu, times] : rig.monitor.statistics().usage.of(each).times) {
        Time sum{0};
        for (const auto& [code, span] : times) sum += span;
        const double life = monitor::seconds(rig.now - each.since);
        ASSERT_NEAR(monitor::seconds(sum), life, life / 1000) << "seed " << seed;
      }
    }
  }
  std::map<JobKey, status::JobStatus> listed() {
    std::map<JobKey, status::JobStatus> out;
    rig.monitor.look_at_status(rig.now);
    for (const auto& [key, each] : rig.monitor.registry().jobs()) {
      out.emplace(key, rig.monitor.statuses().of(each));
    }
    return out;
  }
  // JSON says what was decided.
  void expect_json(const std::map<JobKey, status::JobStatus>& said) {
    std::size_t at = 0;
    const json jobs = list_jobs(rig.monitor, Peer{1, 0}, json::object(), rig.now)["jobs"];
    for (const auto& [key, each] : said) {
      const json& job = jobs[at++];
      ASSERT_EQ(job["state"], key_of(each.job.code.state));
      ASSERT_EQ(job["state_reason"].is_null(), reason_text(each.job).empty());
      ASSERT_EQ(job["gpus"].size(), each.gpus.size());
      for (std::size_t gpu = 0; gpu < each.gpus.size(); ++gpu) {
        ASSERT_EQ(job["gpus"][gpu]["state"], key_of(each.gpus[gpu].status.code.state));
      }
    }
  }

  // The state and reason of each job, and of the GPUs where it has one of its own, as the events
  // tell them. Each event begins with what the one before it ended with.
  using Replayed = std::map<std::pair<JobKey, unsigned>, Code>;
  void replay(const EventRing& ring, std::uint64_t& read) {
    std::vector<HistoryEvent> events;
    const EventRing::Read got = ring.read(read, events, ring.capacity());
    ASSERT_EQ(got.lost, 0u);
    read = got.last;
    for (const HistoryEvent& event : events) {
      if (event.kind != EventKind::kState && event.kind != EventKind::kWork) continue;
      Code& code = replayed[{event.job, event.gpu}];
      // Another job or person is a change, too.
      ASSERT_EQ(code, status::code_before(event)) << "of job " << event.job;
      code = status::code_after(event);
    }
  }
  // Of one look: a job has one event of a look in one of the rings.
  void replay() {
    replay(rig.monitor.journal().rare(), rare_read);
    replay(rig.monitor.journal().timeline(), timeline_read);
  }
  void expect_replayed(const std::map<JobKey, status::JobStatus>& listed) {
    for (const auto& [key, said] : listed) {
      ASSERT_EQ(replayed[std::pair(key, 0u)], said.job.code) << text_of(said.job, "");
      for (const auto& [gpu, on] : said.gpus) {
        const auto own = replayed.find({key, static_cast<unsigned>(gpu) + 1});
        const bool has_own = own != replayed.end() && own->second != Code{};
        ASSERT_EQ(has_own ? own->second : replayed[std::pair(key, 0u)], on.code)
            << "GPU " << gpu << ": " << text_of(on, "");
      }
    }
  }

  Rig rig{2, 4 * kGiB, with_host_pool(4 * kGiB)};
  Replayed replayed;
  std::uint64_t rare_read = 0, timeline_read = 0;
  std::vector<Joined> all;

  void SetUp() override {
    all.push_back(starts("a", "", 1));
    all.push_back(starts("b", "20%", 2));
    all.push_back(starts("c", "", 1));
    all.push_back(starts("c", "", 1));
  }
};

TEST_F(StatusLaws, AListingAndTheSumsNeverDifferAndTheSumsAreTheWholeLife) {
  std::map<std::string, unsigned> texts;
  Seen before = seen();
  for (unsigned seed = 1; seed <= test_support::seeds(10'000); ++seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < 3; ++step) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", step " << step);
      for (unsigned i = random() % 3; i > 0; --i) {
        happens(random);
        replay();
      }
      rig.monitor.look(rig.now);
      const auto said = listed();
      replay();
      expect_replayed(said);
      if (seed % 100 == 0) expect_json(said);
      for (const auto& [key, each] : said) ++texts[key_of(each.job.code.state)];
      rig.now += milliseconds(1 + random() % 300);
      rig.monitor.count_usage(rig.now);
      replay();
      Seen after = seen();
      expect_one_truth(said, before, after);
      before = std::move(after);
      if (HasFatalFailure()) return;
    }
    expect_all_of_life(seed);
    if (HasFatalFailure()) return;
  }
  if (test_support::seeds(10'000) < 10'000) return;
  // All that this world can do was done.
  for (const char* state :
       {"running", "idle", "held", "waiting", "paused", "swapped", "moving", "stopped"}) {
    EXPECT_GT(texts[state], 10u) << state;
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
