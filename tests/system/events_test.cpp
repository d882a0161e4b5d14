// `switchyard events` with a real monitor and real jobs.
#include "switchyard/status.h"
#include "tests/system/harness.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

class Events : public Scene {
 protected:
  json listed(const Words& more = {}) {
    Words words = {"events", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const auto end = cli(words);
    EXPECT_EQ(end.status, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }
  // By kind, in their order.
  Words kinds(const json& listing) {
    Words out;
    for (const json& event : listing["events"]) {
      if (event["kind"] != "state") out.push_back(event["kind"]);
    }
    return out;
  }
};

TEST_F(Events, TellWhatHappenedToAJobAndWhoDidIt) {
  auto daemon = monitor({"--persist"});
  auto job = loop({"--name", "train"});
  ASSERT_EQ(cli({"pause", "train", "--timeout", "60s"}).status, 0);
  ASSERT_EQ(cli({"resume", "train"}).status, 0);
  ASSERT_EQ(cli({"set", "train", "--share", "2"}).status, 0);
  job.finish(kLimit);
  ASSERT_TRUE(eventually([&] { return kinds(listed()).back() == "job ends"; }));
  const json listing = listed();
  EXPECT_EQ(differences(listing, read_schema("events")), Words{});
  EXPECT_EQ(kinds(listing),
            (Words{"monitor begins", "job begins", "paused", "resumed", "command", "job ends"}));
  EXPECT_EQ(kinds(listed({"--job", "train", "--since", "1h"})),
            (Words{"job begins", "paused", "resumed", "command", "job ends"}))
      << "it is known by its name when it has ended";
  for (const json& event : listing["events"]) {
    if (event["kind"] != "paused") continue;
    EXPECT_EQ(event["user"], event["by_user"]);
    EXPECT_GT(event["by_pid"].get<int>(), 0);
    EXPECT_EQ(event["name"], "train");
  }
  const auto text = cli({"events"});
  EXPECT_NE(text.out.find("train            paused for 60 s by "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("set 'train': share 1 -> 2 by "), std::string::npos) << text.out;
}

TEST_F(Events, WhoFollowsHearsThemAsTheyComeAndEndsWithTheMonitor) {
  auto daemon = monitor({"--persist"});
  auto job = loop({"--name", "train"});
  auto follows = start({built("switchyard"), "events", "--follow", "--json"});
  // From when it follows on: a pause that it has not heard yet is asked for again.
  json heard;
  std::string line;
  ASSERT_TRUE(eventually([&] {
    cli({"pause", "train"});
    return follows.read_line(line, std::chrono::seconds(1));
  }));
  heard = json::parse(line, nullptr, false);
  EXPECT_EQ(differences(heard, read_schema("events")), Words{});
  ASSERT_EQ(cli({"stop", "--force", "--resume"}).status, 0);
  const auto end = follows.finish(kLimit);
  EXPECT_EQ(end.status, kMonitorUnreachable) << end.err;
}

TEST_F(Events, WithoutAMonitorOrSuchAJobItSaysSo) {
  EXPECT_EQ(cli({"events"}).status, kMonitorUnreachable);
  auto daemon = monitor({"--persist"});
  EXPECT_EQ(cli({"events", "--job", "nobody"}).status, kNoSuchJobOrGpu);
  EXPECT_EQ(cli({"events", "--since", "soon"}).status, kUsage);
}

TEST_F(Events, OutliveTheMonitor) {
  auto first = monitor({"--persist"});
  EXPECT_EQ(cli({"run", "--name", "early", "--", loop_program(), "--count", "3"}).status, 0);
  const Words of_early{"job begins", "job ends"};
  ASSERT_TRUE(eventually([&] { return kinds(listed({"--job", "early"})) == of_early; }));
  ASSERT_EQ(cli({"stop"}).status, 0);
  first.finish(kLimit);
  auto second = monitor({"--persist"});
  EXPECT_EQ(kinds(listed()), Words{"monitor begins"}) << "this is what it remembers";
  const json all = listed({"--since", "1h"});
  EXPECT_EQ(differences(all, read_schema("events")), Words{});
  EXPECT_EQ(kinds(all),
            (Words{"monitor begins", "job begins", "job ends", "command", "monitor begins"}));
  EXPECT_EQ(all["lost"], 0);
  EXPECT_EQ(kinds(listed({"--since", "yesterday", "--job", "early"})), of_early);
  EXPECT_EQ(cli({"events", "--since", "1h", "--job", "nobody"}).status, kNoSuchJobOrGpu);
  kill_and_wait(second.pid());
  auto third = monitor({"--persist", "--history", "none"});
  const auto end = cli({"events", "--since", "1h"});
  EXPECT_EQ(end.status, 0);
  EXPECT_TRUE(says(end, "earlier events are not known: no history is kept")) << end.err;
}

}  // namespace
}  // namespace switchyard::system_tests
