// A person's choice outlives the monitor; and who did what stands in its log.
#include "monitor/control/kept_choice.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "monitor/control/audit.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

namespace fs = std::filesystem;

class KeptChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    settings.socket = folder_ + "/monitor.sock";
    spdlog::set_level(spdlog::level::info);
  }
  void TearDown() override {
    spdlog::set_level(spdlog::level::off);
    fs::remove_all(folder_);
  }
  std::string file() const { return settings.socket + ".chosen"; }
  // The policy of the next monitor, started with `options`.
  policy::Kind next(const Settings& options) {
    Rig rig(1, 4 * kGiB, options);
    restore_choice(rig.monitor);
    means = rig.monitor.scheduler().chosen();
    rules = rig.monitor.scheduler().rules();
    slice_us = rules.slice_us;
    return rig.monitor.scheduler().rules().kind;
  }
  void choose_fair() {
    Rig rig(1, 4 * kGiB, settings);
    EXPECT_EQ(rig.ask({{"op", "policy"}, {"policy", "fair"}, {"slice", "4ms"}})["ok"], true);
    EXPECT_EQ(rig.ask({{"op", "means"}, {"means", "gate"}})["ok"], true);
  }
  Settings settings;
  Means means = Means::kAuto;
  policy::Rules rules;
  std::uint32_t slice_us = 0;

 private:
  std::string folder_;
};

TEST_F(KeptChoice, OutlivesTheMonitor) {
  EXPECT_EQ(next(settings), policy::Kind::kPriority);
  choose_fair();
  EXPECT_EQ(next(settings), policy::Kind::kFair);
  EXPECT_EQ(means, Means::kGate);
  EXPECT_EQ(slice_us, 4'000u);
}

TEST_F(KeptChoice, OfTheMinimumAndTheWaitsOutlivesTheMonitorToo) {
  const bool other = !settings.rules.foresee;
  {
    Rig rig(1, 4 * kGiB, settings);
    const char* waits = other ? "foreseen" : "slices";
    EXPECT_EQ(rig.ask({{"op", "policy"}, {"minimum", "50%"}, {"waits", waits}})["ok"], true);
  }
  next(settings);
  EXPECT_EQ(rules.minimum, 0.5) << "the most that there may be";
  EXPECT_EQ(rules.foresee, other);
}

TEST_F(KeptChoice, StandsInAFileOfItsUserAlone) {
  choose_fair();
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(KeptChoice, IsIgnoredWhereAGroupCanWriteOrAnotherUserOwnsIt) {
  choose_fair();
  fs::permissions(file(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_EQ(next(settings), policy::Kind::kPriority);
  fs::permissions(file(), fs::perms::group_write, fs::perm_options::remove);
  EXPECT_EQ(next(settings), policy::Kind::kFair);
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play another user";
  ASSERT_EQ(::chown(file().c_str(), 47112, 47112), 0);
  EXPECT_EQ(next(settings), policy::Kind::kPriority);
}

TEST_F(KeptChoice, ThatCannotBeWrittenIsInForceAndTold) {
  const LogLines log;
  settings.socket = "/proc/none/monitor.sock";
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"policy", "fair"}})["ok"], true);
  EXPECT_EQ(rig.monitor.scheduler().rules().kind, policy::Kind::kFair);
  EXPECT_EQ(log.count("the next monitor will not have this choice"), 1u);
}

TEST_F(KeptChoice, IsKeptThoughAnEarlierMonitorWasKilledWhileItWroteOne) {
  std::ofstream(file() + ".new") << "{\"policy\":";
  choose_fair();
  EXPECT_EQ(next(settings), policy::Kind::kFair);
}

TEST_F(KeptChoice, OfAMonitorWithoutASocketIsNotWritten) {
  const LogLines log;
  Rig rig;
  rig.ask({{"op", "policy"}, {"policy", "fair"}});
  EXPECT_FALSE(fs::exists(".chosen"));
  EXPECT_EQ(log.count("will not have this choice"), 0u);
}

TEST_F(KeptChoice, OfTheUsualSliceOutlivesAnOption) {
  settings.rules.slice_us = 5'000;
  {
    Rig rig(1, 4 * kGiB, settings);
    EXPECT_EQ(rig.ask({{"op", "policy"}, {"slice", "25ms"}})["ok"], true);
  }
  next(settings);
  EXPECT_EQ(slice_us, 25'000u);
}

TEST_F(KeptChoice, OfAnOlderMonitorHasTheUsualSlice) {
  choose_fair();
  json kept = json::parse(std::ifstream(file()));
  EXPECT_EQ(kept.erase("slice_us"), 1u);
  EXPECT_FALSE(kept["options"].contains("slice_us")) << "an older monitor wrote none";
  std::ofstream(file()) << kept.dump();
  EXPECT_EQ(next(settings), policy::Kind::kFair);
  EXPECT_EQ(slice_us, kUsualSliceUs);
}

TEST_F(KeptChoice, YieldsToOtherOptions) {
  choose_fair();
  Settings other = settings;
  other.rules.kind = policy::Kind::kExclusive;
  EXPECT_EQ(next(other), policy::Kind::kExclusive);
}

TEST_F(KeptChoice, IsIgnoredWhereItIsNotOursOrMakesNoSense) {
  const LogLines log;
  const std::string nonsense[] = {"",
                                  "{",
                                  "[1]",
                                  "{\"policy\":\"fair\"}",
                                  std::string(100'000, 'x'),
                                  R"({"policy":"fair","waits":"slices","backend":"auto",)"
                                  R"("minimum_ratio":7})",
                                  R"({"policy":"fair","waits":"slices","backend":"auto",)"
                                  R"("minimum_ratio":0.1,"slice_us":1999})",
                                  R"({"policy":"fair","waits":"slices","backend":"auto",)"
                                  R"("minimum_ratio":0.1,"slice_us":"4ms"})",
                                  R"({"policy":{},"waits":"slices","backend":"auto",)"
                                  R"("minimum_ratio":0.1})"};
  std::size_t ignored = 0;
  for (const std::string& text : nonsense) {
    std::ofstream(file()) << text;
    fs::permissions(file(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(next(settings), policy::Kind::kPriority) << text.substr(0, 100);
    EXPECT_EQ(log.count("is ignored"), ++ignored) << text.substr(0, 100);
    fs::remove(file());
  }
  choose_fair();
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(next(settings), policy::Kind::kPriority) << "others can write to it";
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::remove);
  fs::rename(file(), file() + ".else");
  fs::create_symlink(file() + ".else", file());
  EXPECT_EQ(next(settings), policy::Kind::kPriority) << "a link";
}

// The log's text of a command; "-": none.
TEST(CommandText, SaysWhatWasAskedAndWhatCameOfIt) {
  const json done = {{"ok", true}}, refused = {{"ok", false}, {"error", "no"}};
  const json changed = {{"ok", true}, {"before", {{"limit", "none"}, {"share", "1"}}}};
  const struct {
    json request;
    json reply;
    const char* text;
  } rows[] = {
      {{{"op", "create"}}, done, "-"},
      {{{"op", "create"}}, refused, "run: refused: no"},
      {{{"op", "stop"}}, done, "stop"},
      {{{"op", "policy"}, {"policy", "x"}}, done, "-"},
      {{{"op", "means"}}, refused, "means: refused: no"},
      {{{"op", "migrate"}, {"target", "x"}, {"to", "1"}}, done, "migrate 'x' to 1"},
      {{{"op", "resume"}, {"target", "x"}, {"to", "1"}}, done, "resume 'x'"},
      {{{"op", "pause"}, {"target", "x"}, {"release", true}}, done, "pause 'x', release true"},
      {{{"op", "swap-out"}, {"target", "x"}, {"release", true}}, done, "swap-out 'x'"},
      {{{"op", "set"}, {"target", "x"}, {"limit", "30%"}, {"share", 4}},
       changed,
       "set 'x': limit none -> 30%, share 1 -> 4"},
      {{{"op", "set"}, {"target", "x"}}, refused, "set 'x': refused: no"},
      {{{"op", "ps"}}, refused, "-"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(command_text(row.request, row.reply, "as before", "as before").value_or("-"),
              row.text)
        << row.request;
  }
}

TEST(CommandText, HasABoundedPartOfWhatAPeerSays) {
  const json request = {{"op", "pause"}, {"target", std::string(1000, 'x')}};
  EXPECT_EQ(command_text(request, {{"ok", true}}, "", ""), "pause '" + std::string(200, 'x') + "'");
}

class Audit : public KeptChoice {};

TEST_F(Audit, EachChangeStandsInTheLogWithWhoMadeIt) {
  const LogLines log;
  Rig rig;
  const uid_t user = ::geteuid() + 1;  // neither root nor the monitor's owner
  rig.join({.name = "x"}, user);
  const std::string root = user_name(0) + " (pid 77): ";
  const std::string own = user_name(user) + " (pid 78): ";
  const auto as_root = [&](const json& request) { return rig.ask(request, 0, 77); };
  const auto as_owner = [&](const json& request) { return rig.ask(request, user, 78); };
  as_root({{"op", "set"}, {"target", "x"}, {"limit", "30%"}});
  EXPECT_EQ(log.count(root + "set 'x': limit none -> 30%"), 1u);
  as_root({{"op", "policy"}, {"policy", "fair"}});
  EXPECT_EQ(log.count(root + "policy priority, "), 1u);
  EXPECT_EQ(log.count("-> policy fair, "), 1u);
  as_root({{"op", "policy"}});
  EXPECT_EQ(log.count("-> policy"), 1u) << "to ask is no change";
  as_root({{"op", "means"}, {"means", "none"}});
  EXPECT_EQ(log.count("backend none"), 1u);
  as_owner({{"op", "pause"}, {"target", "x"}, {"timeout_seconds", 20}});
  EXPECT_EQ(log.count(own + "pause 'x' for 20 s"), 1u);
  as_owner({{"op", "resume"}, {"target", "x"}});
  EXPECT_EQ(log.count(own + "resume 'x'"), 1u);
  as_owner({{"op", "swap-out"}, {"target", "x"}});
  EXPECT_EQ(log.count(own + "swap-out 'x': refused: "), 1u);
  as_owner({{"op", "stop"}});
  EXPECT_EQ(log.count(own + "stop: refused: this monitor belongs to"), 1u);
  rig.ask({{"op", "pause"}, {"target", "x"}}, user + 1, 79);
  EXPECT_EQ(log.count(user_name(user + 1) + " (pid 79): pause 'x': refused: job 'x' belongs to"),
            1u);
  as_owner({{"op", "ps"}});
  EXPECT_EQ(log.count(own + "ps"), 0u);
}

TEST_F(Audit, OneUserCannotFillTheLog) {
  const LogLines log;
  Settings roots;
  roots.owner = 0;
  Rig rig(1, 4 * kGiB, roots);
  for (int i = 0; i < 1000; ++i)
    rig.ask({{"op", "pause"}, {"target", "\n" + std::string(999, 'x')}}, 1001);
  EXPECT_EQ(log.count(": pause"), 60u);
  EXPECT_EQ(log.count("further commands of this user are not logged"), 1u);
  EXPECT_EQ(log.count("pause '?xxx"), 60u) << "a line is a line";
  rig.now += std::chrono::minutes(1);
  rig.ask({{"op", "pause"}, {"target", "y"}}, 1001);
  EXPECT_EQ(log.count(": pause 'y'"), 1u);
}

TEST_F(Audit, EachCommandOfRootIsLogged) {
  const LogLines log;
  Settings roots;
  roots.owner = 0;
  Rig rig(1, 4 * kGiB, roots);
  for (int i = 0; i < 100; ++i) rig.ask({{"op", "pause"}, {"target", "y"}});
  EXPECT_EQ(log.count(": pause 'y'"), 100u);
}

TEST_F(Audit, RefusedMemoryIsLoggedOnceAMinuteForEachJob) {
  const LogLines log;
  Rig rig;
  const auto job = rig.join({.name = "x", .memory = "1GiB"});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(rig.charge(job, 2 * kGiB).verdict, wire::kOverQuota);
  EXPECT_EQ(log.count("bytes refused to pid"), 1u);
  EXPECT_EQ(log.count("its quota does not have it"), 1u);
  rig.now += std::chrono::minutes(1);
  rig.charge(job, 2 * kGiB);
  EXPECT_EQ(log.count("bytes refused to pid"), 2u);
}

}  // namespace
}  // namespace switchyard::monitor::test
