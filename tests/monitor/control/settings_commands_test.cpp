// What the owner of a monitor chooses for all jobs: the policy, the means, and its end.
#include "monitor/control/settings_commands.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

TEST(Commands, MeansBelongToTheMonitorsOwner) {
  Rig rig;
  const uid_t stranger = ::geteuid() + 1;
  EXPECT_EQ(rig.ask({{"op", "means"}, {"means", "none"}}, stranger)["code"], kNoPermission);
  EXPECT_EQ(rig.monitor.scheduler().chosen(), Means::kAuto);
}

TEST(Commands, StopIsTheOwnersAndWithJobsNeedsForce) {
  Settings settings;
  settings.persist = true;
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_EQ(rig.ask({{"op", "stop"}}, ::geteuid() + 1)["code"], kNoPermission);
  rig.join({.name = "x"});
  const json refused = rig.ask({{"op", "stop"}});
  EXPECT_EQ(refused["code"], kRefusedByPolicy);
  EXPECT_NE(refused["error"].get<std::string>().find("'x'"), std::string::npos);
  EXPECT_FALSE(rig.monitor.done(rig.now));
  EXPECT_EQ(rig.ask({{"op", "stop"}, {"force", true}})["ok"], true);
  EXPECT_TRUE(rig.monitor.done(rig.now));
}

// A monitor of another version could not resume it.
TEST(Commands, StopByForceNamesPausedJobsAndRefuses) {
  Rig rig;
  rig.join({.name = "x"});
  rig.join({.name = "other"});
  rig.tell("pause");
  const json refused = rig.ask({{"op", "stop"}, {"force", true}});
  EXPECT_EQ(refused["code"], kRefusedByPolicy);
  const std::string why = refused["error"];
  EXPECT_NE(why.find("'x'"), std::string::npos) << why;
  EXPECT_EQ(why.find("'other'"), std::string::npos) << why;
  EXPECT_NE(why.find("--resume"), std::string::npos) << why;
  EXPECT_FALSE(rig.monitor.done(rig.now));
  rig.tell("resume");
  EXPECT_EQ(rig.ask({{"op", "stop"}, {"force", true}})["ok"], true);
}

TEST(Commands, StopWithoutJobsEndsAMonitorThatWouldStay) {
  Settings settings;
  settings.persist = true;
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_EQ(rig.ask({{"op", "stop"}})["ok"], true);
  EXPECT_TRUE(rig.monitor.done(rig.now));
}

TEST(Commands, StopNamesThreeJobsAndCountsTheRest) {
  Rig rig;
  for (const char* name : {"a", "b", "c"}) rig.join({.name = name});
  const auto why = [&] { return rig.ask({{"op", "stop"}})["error"].get<std::string>(); };
  EXPECT_NE(why().find("running: 'a', 'b', 'c'; without"), std::string::npos) << why();
  rig.join({.name = "d"});
  EXPECT_NE(why().find("running: 'a', 'b', 'c' and 1 more; without"), std::string::npos) << why();
}

TEST(Commands, StopSaysWhatItLeaves) {
  Settings settings;
  settings.socket_passed = true;
  Rig rig(1, 4 * kGiB, settings);
  rig.join({.name = "x"});
  const json reply = rig.ask({{"op", "stop"}, {"force", true}});
  EXPECT_EQ(reply["pid"], ::getpid());
  EXPECT_EQ(reply["jobs"], 1);
  EXPECT_EQ(reply["socket_passed"], true);
}

TEST(Commands, ForceIsTrueAndNothingElse) {
  Rig rig;
  rig.join({.name = "x"});
  for (const json& force : {json(false), json(1), json("true"), json()}) {
    EXPECT_EQ(rig.ask({{"op", "stop"}, {"force", force}})["code"], kRefusedByPolicy) << force;
  }
  EXPECT_FALSE(rig.monitor.done(rig.now));
}

TEST(Commands, EverybodyMayAskForThePolicyAndTheOwnerMayChangeIt) {
  Rig rig;
  const uid_t stranger = ::geteuid() + 1;
  EXPECT_EQ(rig.ask({{"op", "policy"}}, stranger)["policy"], "priority");
  for (const char* key : {"policy", "minimum", "slice", "waits"}) {
    json request = {{"op", "policy"}};
    request[key] = key == std::string("policy")    ? "fair"
                   : key == std::string("minimum") ? "10%"
                   : key == std::string("slice")   ? "4ms"
                                                   : "slices";
    EXPECT_EQ(rig.ask(request, stranger)["code"], kNoPermission) << key;
    EXPECT_EQ(rig.ask(request, ::geteuid())["ok"], true) << key;
  }
}

TEST(Commands, APolicyIsChangedAsAWholeOrNotAtAll) {
  Rig rig;
  const policy::Rules before = rig.monitor.scheduler().rules();
  for (const char* key : {"minimum", "slice", "waits"}) {
    const json reply = rig.ask({{"op", "policy"}, {"policy", "fair"}, {key, "nonsense"}});
    EXPECT_EQ(reply["code"], kUsage) << key;
    EXPECT_EQ(rig.monitor.scheduler().rules().kind, before.kind) << key;
  }
}

TEST(Commands, APolicyKeepsWhatIsNotNamed) {
  Rig rig;
  rig.ask({{"op", "policy"}, {"policy", "fair"}, {"minimum", "10%"}, {"slice", "4ms"}});
  const json reply = rig.ask({{"op", "policy"}, {"waits", "foreseen"}});
  EXPECT_EQ(reply["policy"], "fair");
  EXPECT_EQ(reply["minimum_ratio"], 0.1);
  EXPECT_EQ(reply["slice_us"], 4000);
  EXPECT_EQ(reply["waits"], "foreseen");
  EXPECT_EQ(rig.ask({{"op", "policy"}}), reply) << "it is in force";
}

TEST(Commands, AChoiceIsShownWithTheCommandThatMadeIt) {
  using config::Setting;
  Settings settings;
  const Setting all[] = {Setting::kPolicy, Setting::kMinimum, Setting::kSlice, Setting::kWaits,
                         Setting::kBackend};
  for (const Setting each : all) {
    settings.shown.push_back({config::row_of(each).key, "begun", "f.toml:1"});
  }
  settings.rules.foresee = false;
  Rig rig(1, 4 * kGiB, settings);
  const auto shown = [&](std::size_t at) {
    const json entry = rig.ask({{"op", "config"}})["settings"][at];
    return entry["value"].get<std::string>() + " by " + entry["from"].get<std::string>();
  };
  const struct {
    json choice;
    const char* becomes;
  } rows[] = {{{{"op", "policy"}, {"policy", "fair"}}, "fair by `switchyard policy`"},
              {{{"op", "policy"}, {"minimum", "12.5%"}}, "12.5% by `switchyard policy`"},
              {{{"op", "policy"}, {"slice", "4ms"}}, "4ms by `switchyard policy`"},
              {{{"op", "policy"}, {"waits", "foreseen"}}, "foreseen by `switchyard policy`"},
              {{{"op", "means"}, {"means", "gate"}}, "gate by `switchyard backend`"}};
  for (std::size_t at = 0; at < std::size(rows); ++at) {
    EXPECT_EQ(shown(at), "begun by f.toml:1") << at;
    ASSERT_EQ(rig.ask(rows[at].choice)["ok"], true);
    EXPECT_EQ(shown(at), rows[at].becomes);
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
