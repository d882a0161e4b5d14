// Deaths and faults in an island: each member that fails is told why, and nobody outside feels it.
#include <signal.h>

#include "tests/system/island_scene.h"

namespace switchyard::system_tests {
namespace {

class IslandFaults : public IslandScene {
 protected:
  // The text of the job's last event of that kind; empty: it has none.
  std::string event(const std::string& name, const std::string& kind) {
    const auto end = cli({"events", "--job", name, "--json"});
    std::string text;
    if (end.status != 0) return text;
    const json listing = json::parse(end.out);
    for (const json& each : listing["events"]) {
      if (each["kind"] == kind) text = each["text"];
    }
    return text;
  }
  bool is_told(const std::string& name, const std::string& kind, const std::string& text) {
    return eventually([&] { return event(name, kind).find(text) != std::string::npos; });
  }
  bool serves() {
    return eventually([this] { return server_pid() != 0; });
  }
};

TEST_F(IslandFaults, TheEndOfTheServerIsToldToItsMembers) {
  const Child monitor = this->monitor();
  Child a = member("a"), outside = loop({"--name", "outside"});
  ASSERT_TRUE(serves());
  const int server = server_pid();
  ::kill(server, SIGKILL);
  EXPECT_EQ(line_of(a), "error a launch");
  EXPECT_TRUE(
      is_told("a", "island ended",
              "the MPS server of its island has ended (pid " + std::to_string(server) + ")"));
  EXPECT_TRUE(goes_on(outside));
  EXPECT_EQ(event("outside", "island ended"), "");
  EXPECT_TRUE(is_told("a", "job ends", "ends"));
  const auto why = cli({"why", "a"});
  EXPECT_EQ(why.status, 4);
  EXPECT_TRUE(says(why, "job 'a' has ended")) << why.err;
  EXPECT_TRUE(says(why, "before that the MPS server of its island has ended")) << why.err;
}

TEST_F(IslandFaults, AFaultIsToldToAllAndThoseAtWorkAreSuspects) {
  const Child monitor = this->monitor();
  Child idle = job({"--name", "idle", "--co-run"},
                   {built("tests/jobs/job_alloc"), "alloc:1", "wait"}, with());
  ASSERT_EQ(line_of(idle), "alloc 0");
  Child a = member("a"), outside = loop({"--name", "outside"});
  ASSERT_TRUE(serves());
  const int server = server_pid();
  Child bad =
      job({"--name", "bad", "--co-run"}, {loop_program(), "--count", "200", "--fault"}, with());
  EXPECT_EQ(line_of(bad), "fault 700");
  EXPECT_EQ(line_of(a), "error a launch");
  EXPECT_TRUE(is_told("bad", "island fault", "illegal address (error 700); at work then"));
  EXPECT_TRUE(is_told("a", "island fault", "a suspect"));
  EXPECT_TRUE(is_told("idle", "island fault", "not at work then"));
  EXPECT_EQ(event("outside", "island fault"), "");
  const auto why = cli({"why", "idle"});
  EXPECT_NE(why.out.find("illegal address (error 700)"), std::string::npos) << why.out;
  EXPECT_EQ(why.status, 0);
  Child b = member("b");
  EXPECT_TRUE(goes_on(b) && goes_on(outside));
  EXPECT_EQ(server_pid(), server);
}

TEST_F(IslandFaults, TheDeathOfAMemberHarmsNoOther) {
  const Child monitor = this->monitor();
  Child a = member("a"), b = member("b");
  ASSERT_TRUE(serves());
  ::kill(a.pid(), SIGKILL);
  EXPECT_TRUE(is_told("a", "job ends", "ends"));
  EXPECT_TRUE(goes_on(b));
  EXPECT_EQ(event("b", "island ended") + event("b", "island fault"), "");
}

TEST_F(IslandFaults, AJobRunsOnceMoreOnlyWhenItsIslandFailed) {
  const Child monitor = this->monitor();
  Child a = member("a", {"--restart", "on-island-failure"});
  ASSERT_TRUE(serves());
  const int server = server_pid();
  ::kill(server, SIGKILL);
  EXPECT_EQ(line_of(a), "error a launch");
  EXPECT_EQ(line_of(a), "ready");
  EXPECT_TRUE(goes_on(a));
  EXPECT_NE(server_pid(), server);
  // By itself it is not run again.
  Child b = job({"--name", "b", "--co-run", "--restart", "on-island-failure"},
                {"sh", "-c", "exit 3"}, with());
  EXPECT_EQ(b.finish(kLimit).status, 3);
}

TEST_F(IslandFaults, ARestartThatMakesNoSenseIsRefused) {
  const auto refused = [this](Words options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "true"});
    const Child::End end = cli(options, with());
    EXPECT_EQ(end.status, 2) << end.err;
    return end.err;
  };
  EXPECT_NE(refused({"--restart", "on-island-failure"}).find("needs --co-run"), std::string::npos);
  EXPECT_NE(refused({"--co-run", "--restart", "always"}).find("on-island-failure"),
            std::string::npos);
  EXPECT_NE(refused({"--co-run", "--restart", "on-island-failure", "--report=after"})
                .find("exclude each other"),
            std::string::npos);
}

}  // namespace
}  // namespace switchyard::system_tests
