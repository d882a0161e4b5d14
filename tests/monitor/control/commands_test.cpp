// What people ask, as JSON.
#include "monitor/control/commands.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

TEST(Commands, Version) {
  Rig rig;
  const json reply = rig.ask({{"op", "version"}});
  EXPECT_EQ(reply["ok"], true);
  EXPECT_EQ(reply["version"], kVersion);
  EXPECT_EQ(reply["schema_version"], kSchemaVersion);
}

TEST(Commands, NonsenseIsAUsageErrorNeverMore) {
  Rig rig;
  const Peer peer{1, 1000};
  for (const char* text : {"",
                           "null",
                           "[]",
                           "42",
                           "{",
                           "{}",
                           R"({"op":7})",
                           R"({"op":null})",
                           R"({"op":["set"]})",
                           R"({"op":"format"})",
                           R"({"op":"means"})",
                           R"({"op":"means","means":{}})",
                           R"({"op":"create","card":7})",
                           R"({"op":"create","card":{"priority":[1]}})",
                           R"({"op":"create","card":{"share":{"a":1}}})",
                           R"({"op":"create","card":{"name":"a b"}})",
                           R"({"op":"create","card":{"memory":"0"}})",
                           R"({"op":"create","card":{"on_oom":"maybe"}})",
                           R"({"op":"create","card":{"oom_timeout":"never"}})",
                           R"({"op":"create","card":{"swappable":"maybe"}})",
                           R"({"op":"create","card":{"idle_release":"0"}})",
                           R"({"op":"create","card":{"oversubscribe":"maybe"}})",
                           R"({"op":"create","card":{"park":"gpu"}})",
                           R"({"op":"swap"})"}) {
    const json reply = json::parse(answer_command(rig.monitor, peer, text, rig.now).json);
    EXPECT_EQ(reply["ok"], false) << text;
    EXPECT_EQ(reply["code"], kUsage) << text;
    EXPECT_FALSE(reply["error"].get<std::string>().empty());
  }
  EXPECT_TRUE(rig.monitor.registry().jobs().empty());
}

TEST(Commands, WaitsOfBurstsAreListedForWhoeverAsks) {
  Rig rig;
  const Joined high = rig.runs({.job = "a", .name = "a", .priority = "high"});
  rig.runs({.job = "b", .name = "b"});
  const auto waits = [&] {
    rig.pass(milliseconds(200));
    return rig.ask({{"op", "ps"}, {"latency", true}})["jobs"][0]["burst_waits"];
  };
  const auto burst = [&](std::uint32_t number, std::uint16_t us) {
    high.shim.gate().counts[number % abi::kCountedBursts] = 5;
    high.lane().burst_cpu_us[number % abi::kCountedBursts] = 10;
    high.lane().burst_waited_us[number % abi::kCountedBursts] = us;
    high.shim.gate().bursts = number;
  };
  EXPECT_FALSE(rig.ask({{"op", "ps"}})["jobs"][0].contains("burst_waits"));
  burst(1, 150);
  EXPECT_EQ(waits()["sum_seconds"], 0) << "before it was asked, nothing was counted";
  waits();
  burst(2, 150);
  burst(3, 60'000);
  const json counted = waits();
  ASSERT_EQ(counted["buckets"].size(), BurstWaits::kMostUs.size() + 1);
  EXPECT_EQ(counted["buckets"][1], (json{{"most_seconds", 2e-4}, {"count", 1}}));
  EXPECT_EQ(counted["buckets"].back(), (json{{"most_seconds", nullptr}, {"count", 1}}));
  EXPECT_DOUBLE_EQ(counted["sum_seconds"], 0.06015);
  const json listing = rig.ask({{"op", "ps"}, {"latency", true}});
  EXPECT_TRUE(listing["jobs"][1]["burst_waits"].is_null()) << "it is not of priority high";
}

TEST(Commands, ADeeplyNestedRequestIsRefusedWhateverTheStack) {
  Rig rig;
  rig.ask({{"op", "create"}, {"card", {{"name", "x"}}}});
  const std::string deep = std::string(30'000, '[') + std::string(30'000, ']');
  for (const std::string& text :
       {R"({"op":)" + deep + "}", R"({"op":"set","target":"x","more":)" + deep + "}", deep}) {
    const json reply = json::parse(answer_command(rig.monitor, {1, 0}, text, rig.now).json);
    EXPECT_EQ(reply["code"], kUsage);
    EXPECT_LT(reply["error"].get<std::string>().size(), 1000u);
  }
}

TEST(Commands, AnErrorShowsTheValueAndTheForms) {
  Rig rig;
  const json reply = rig.ask({{"op", "create"}, {"card", {{"priority", "urgent"}}}});
  const std::string error = reply["error"];
  EXPECT_NE(error.find("'urgent'"), std::string::npos);
  EXPECT_NE(error.find(kPriorityForms), std::string::npos);
}

// A library has read it by then, or has decided by it.
TEST(Commands, WhatIsFixedWhenAJobStartsIsChangedByNoRequest) {
  Rig rig;
  rig.join({.name = "x"});
  const auto card = [&] {
    const JobCard& now = rig.monitor.registry().find_target("x")->card;
    return std::string(reinterpret_cast<const char*>(&now), sizeof(now));
  };
  const std::string before = card();
  const auto refused = [&](const char* field, const json& request) {
    const json reply = rig.ask(request);
    EXPECT_EQ(reply["code"], kUsage) << reply;
    EXPECT_EQ(reply["error"], std::string(field) + " is fixed when the job starts");
    EXPECT_EQ(card(), before) << field;
  };
  std::size_t fixed = 0;
#define SWITCHYARD_TRY(field, env, capacity, fallback, Kind, option, type, changeable, ...) \
  if (!(changeable)) {                                                                      \
    ++fixed;                                                                                \
    refused(#field, {{"op", "set"}, {"target", "x"}, {"share", "2"}, {#field, "1"}});       \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_TRY)
#undef SWITCHYARD_TRY
  EXPECT_EQ(fixed, 11u) << "id, name, on_oom, oom_timeout, swappable, idle_release, oversubscribe, "
                           "urgent_collectives, gradient_noise, co_run and island_gpu";
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"share", "2"}})["ok"], true);
}

TEST(Commands, NoneTakesEachSettingAwayAgain) {
  Rig rig;
  rig.join({.name = "x", .memory = "1GiB"});
  ASSERT_TRUE(
      rig.ask({{"op", "set"}, {"target", "x"}, {"limit", "30%"}, {"deadline", "1h30m"}})["ok"]);
  json job = rig.job();
  EXPECT_EQ(job["limit_ratio"], 0.3);
  EXPECT_GT(job["deadline_seconds"], 5000);
  const json reply = rig.ask({{"op", "set"},
                              {"target", "x"},
                              {"memory", "None"},
                              {"limit", "none"},
                              {"deadline", "NONE"}});
  EXPECT_EQ(reply["ok"], true) << reply;
  job = rig.job();
  EXPECT_EQ(job["limit_ratio"], nullptr);
  EXPECT_EQ(job["deadline_seconds"], nullptr);
  EXPECT_EQ(job["memory_quota_bytes"], nullptr);
}

TEST(Commands, AJobMayBeCreatedWithNone) {
  Rig rig;
  const json reply = rig.ask(
      {{"op", "create"},
       {"card",
        {{"memory", "none"}, {"limit", "none"}, {"deadline", "none"}, {"idle_release", "none"}}}});
  EXPECT_EQ(reply["ok"], true) << reply;
  const json job = rig.job();
  EXPECT_EQ(job["swappable"], false);
  EXPECT_EQ(job["idle_release_seconds"], nullptr);
}

TEST(Commands, AJobMayBeCalledNone) {
  Rig rig;
  const json reply = rig.ask({{"op", "create"}, {"card", {{"name", "none"}}}});
  EXPECT_EQ(reply["name"], "none") << reply;
}

TEST(Commands, CreateAnswersIdAndNameAndReserves) {
  Rig rig;
  const json reply =
      rig.ask({{"op", "create"}, {"card", {{"name", "train"}, {"memory", "3GiB"}}}}, 1000);
  EXPECT_EQ(reply["ok"], true) << reply;
  EXPECT_EQ(reply["name"], "train");
  EXPECT_NE(reply["job"], "");
  EXPECT_EQ(rig.account().reserved(), 3 * kGiB);
}

TEST(Commands, CreateWithoutANameIsNamedByItsId) {
  Rig rig;
  const json reply = rig.ask({{"op", "create"}});
  EXPECT_EQ(reply["name"], reply["job"]);
}

TEST(Commands, CreateOverWhatIsLeftNamesWhoHoldsIt) {
  Rig rig;
  rig.ask({{"op", "create"}, {"card", {{"name", "train"}, {"memory", "3GiB"}}}});
  const json reply = rig.ask({{"op", "create"}, {"card", {{"memory", "2GiB"}}}});
  EXPECT_EQ(reply["code"], kRefusedByPolicy);
  EXPECT_NE(reply["error"].get<std::string>().find("'train'"), std::string::npos);
  EXPECT_EQ(rig.monitor.registry().jobs().size(), 1u);
  EXPECT_EQ(rig.account().reserved(), 3 * kGiB) << "a refused one reserves nothing";
}

TEST(Commands, CreateWithANameInUseIsRefused) {
  Rig rig;
  rig.ask({{"op", "create"}, {"card", {{"name", "train"}}}});
  const json reply = rig.ask({{"op", "create"}, {"card", {{"name", "train"}}}});
  EXPECT_EQ(reply["code"], kRefusedByPolicy);
  EXPECT_NE(reply["error"].get<std::string>().find("in use"), std::string::npos);
}

TEST(Commands, CreateReservesOnTheVisibleGpusOnly) {
  Rig rig(3);
  rig.ask({{"op", "create"}, {"card", {{"memory", "3GiB"}}}, {"cuda_visible_devices", "1"}});
  EXPECT_EQ(rig.account(0).reserved(), 0u);
  EXPECT_EQ(rig.account(1).reserved(), 3 * kGiB);
  rig.ask({{"op", "create"},
           {"card", {{"memory", "3GiB"}}},
           {"cuda_visible_devices", rig.gpus.infos[2].uuid_text}});
  EXPECT_EQ(rig.account(2).reserved(), 3 * kGiB);
  EXPECT_TRUE(rig.ask({{"op", "create"}, {"card", {{"memory", "3GiB"}}}})["ok"])
      << "GPU 0 still has room";
}

TEST(Commands, WhatNamesNoGpuReservesOnNone) {
  for (const char* visible : {"1,", "1,GPU", "1,GPU-ff"}) {
    Rig rig(2);
    rig.ask({{"op", "create"}, {"card", {{"memory", "3GiB"}}}, {"cuda_visible_devices", visible}});
    EXPECT_EQ(rig.account(0).reserved(), 0u) << visible;
    EXPECT_EQ(rig.account(1).reserved(), 3 * kGiB) << visible;
  }
}

TEST(Commands, OfVeryManyVisibleGpusTheFirstAreRead) {
  Rig rig(2);
  std::string visible;
  for (int i = 0; i < 1024; ++i) visible += "7,";
  rig.ask({{"op", "create"},
           {"card", {{"memory", "3GiB"}}},
           {"cuda_visible_devices", "7," + visible + "1"}});
  rig.ask({{"op", "create"},
           {"card", {{"memory", "1GiB"}}},
           {"cuda_visible_devices", visible.substr(2) + "1"}});
  EXPECT_EQ(rig.account(1).reserved(), 4 * kGiB) << "none named is all; then GPU 1 alone";
  EXPECT_EQ(rig.account(0).reserved(), 3 * kGiB);
}

// Instances of one GPU have its index.
TEST(Commands, AnIndexNamesNoMigInstance) {
  Rig rig(2);
  for (std::size_t gpu : {0u, 1u}) rig.monitor.gpus()[gpu].info.mig = true;
  rig.ask({{"op", "create"}, {"card", {{"memory", "3GiB"}}}, {"cuda_visible_devices", "1"}});
  for (std::size_t gpu : {0u, 1u}) EXPECT_EQ(rig.account(gpu).reserved(), 3 * kGiB) << gpu;
}

TEST(Commands, TheAskerKeepsACreatedJobAlive) {
  Rig rig;
  const Answer own =
      answer_command(rig.monitor, {4321, 1000}, R"({"op":"create","pid":4321})", rig.now);
  EXPECT_NE(own.created, 0u);
  EXPECT_EQ(own.creator, 4321);
  const Answer foreign =
      answer_command(rig.monitor, {4321, 1000}, R"({"op":"create","pid":1})", rig.now);
  EXPECT_EQ(foreign.creator, 4321) << "root's process is not the asker's to name";
  for (const char* pid : {"-1", "0", "99999999999", "\"7\"", "1.5"}) {
    const Answer odd = answer_command(rig.monitor, {4321, 1000},
                                      std::string(R"({"op":"create","pid":)") + pid + "}", rig.now);
    EXPECT_EQ(odd.creator, 4321) << pid;
  }
}

TEST(Commands, ANumberOfAnUnseenNamespaceKeepsNoJobAlive) {
  Rig rig;
  const Answer out = answer_command(rig.monitor, {0, 0}, R"({"op":"create","pid":1})", rig.now);
  EXPECT_NE(out.created, 0u);
  EXPECT_EQ(out.creator, 0) << "it is another process here";
}

TEST(Commands, CapsRefuseWhatUsersAskTooMuch) {
  Settings settings;
  settings.caps.priority = Priority::kNormal;
  settings.caps.memory_bytes = kGiB;
  Rig rig(1, 4 * kGiB, settings);
  const json high = {{"op", "create"}, {"card", {{"priority", "high"}}}};
  EXPECT_EQ(rig.ask(high, 1000)["code"], kRefusedByPolicy);
  EXPECT_EQ(rig.ask(high, 0)["ok"], true);
  rig.join({.name = "x"}, 1000);
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"priority", "high"}}, 1000)["code"],
            kRefusedByPolicy);
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "2GiB"}}, 1000)["code"],
            kRefusedByPolicy);
}

TEST(Commands, WhatAJobHasByRootOrByAnEarlierCapStandsInNobodysWay) {
  Rig rig(1, 4 * kGiB);
  rig.join({.name = "x", .priority = "high", .share = "3", .memory = "2GiB"}, 1000);
  Settings settings;
  settings.caps.priority = Priority::kNormal;
  settings.caps.share = 0.5;
  settings.caps.memory_bytes = kGiB;
  rig.monitor.reconfigure(settings, rig.now);
  const auto set = [&](const char* key, const char* value) {
    return rig.ask({{"op", "set"}, {"target", "x"}, {key, value}}, 1000);
  };
  EXPECT_EQ(set("limit", "50%")["ok"], true);
  EXPECT_EQ(set("priority", "high")["code"], kRefusedByPolicy);
  EXPECT_EQ(set("share", "3")["code"], kRefusedByPolicy);
  EXPECT_EQ(set("memory", "2GiB")["code"], kRefusedByPolicy);
  EXPECT_EQ(set("priority", "low")["ok"], true);
}

TEST(Commands, ACapBelowADefaultRefusesOnlyWhoAsksForMore) {
  Settings settings;
  settings.caps.priority = Priority::kLow;
  settings.caps.share = 0.5;
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_EQ(rig.ask({{"op", "create"}, {"card", {{"name", "x"}}}}, 1000)["ok"], true);
  EXPECT_EQ(rig.monitor.registry().find_target("x")->knobs.priority, Priority::kLow);
  EXPECT_EQ(rig.monitor.registry().find_target("x")->knobs.share.weight, 0.5);
  EXPECT_EQ(rig.ask({{"op", "create"}, {"card", {{"priority", "normal"}}}}, 1000)["code"],
            kRefusedByPolicy);
}

TEST(Commands, SetOfAnUnknownJob) {
  Rig rig;
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "nobody"}})["code"], kNoSuchJobOrGpu);
  EXPECT_EQ(rig.ask({{"op", "set"}})["code"], kNoSuchJobOrGpu);
}

TEST(Commands, SetByAnotherUserIsRefused) {
  Rig rig;
  rig.join({.name = "x"}, 1000);
  const json request = {{"op", "set"}, {"target", "x"}, {"share", "2"}};
  EXPECT_EQ(rig.ask(request, 1001)["code"], kNoPermission);
  EXPECT_EQ(rig.ask(request, 1000)["ok"], true);
  EXPECT_EQ(rig.ask(request, 0)["ok"], true);
}

// What root of a container says.
json ask_inside(Rig& rig, const json& request, const char* container) {
  return json::parse(
      answer_command(rig.monitor, {4321, 0, container}, request.dump(), rig.now).json);
}

TEST(Commands, RootOfAContainerIsAUserOfIts) {
  Settings settings;
  settings.caps.priority = Priority::kNormal;
  settings.caps.memory_bytes = kGiB;
  Rig rig(1, 4 * kGiB, settings);
  rig.join({.name = "host"}, 0);
  EXPECT_EQ(ask_inside(rig, {{"op", "create"}, {"card", {{"name", "box"}}}}, "one")["ok"], true);
  const auto set = [](const char* target) {
    return json{{"op", "set"}, {"target", target}, {"share", "2"}};
  };
  EXPECT_EQ(ask_inside(rig, set("box"), "one")["ok"], true);
  EXPECT_EQ(rig.ask(set("box"), 0)["ok"], true) << "root of the host stays root";
  for (const auto& [target, container] :
       {std::pair("box", "two"), std::pair("host", "one"), std::pair("host", "two")}) {
    const json reply = ask_inside(rig, set(target), container);
    EXPECT_EQ(reply["code"], kNoPermission);
    EXPECT_NE(reply["error"].get<std::string>().find("outside of this container"),
              std::string::npos)
        << reply;
  }
  // Caps hold for it, with the ceiling of memory that is one.
  const json high = {{"op", "create"}, {"card", {{"priority", "high"}}}};
  EXPECT_EQ(ask_inside(rig, high, "one")["code"], kRefusedByPolicy);
  EXPECT_EQ(rig.ask(high, 0)["ok"], true);
  EXPECT_EQ(rig.monitor.registry().find_target("box")->ceiling_bytes, kGiB);
  // And the monitor is not its own.
  for (const char* op : {"stop", "policy", "means"}) {
    const json request = {{"op", op}, {"policy", "fair"}, {"means", "gate"}};
    EXPECT_EQ(ask_inside(rig, request, "one")["code"], kNoPermission) << op;
  }
}

TEST(Commands, AnIdNamesOnlyAJobOfTheSameContainer) {
  Rig rig;
  const auto create = [&](const char* container) {
    return ask_inside(rig, {{"op", "create"}, {"card", {{"job", "train"}}}}, container);
  };
  const json one = create("one"), two = create("two");
  EXPECT_EQ(one["job"], "train");
  EXPECT_EQ(two["ok"], true) << "the id is another user's";
  EXPECT_NE(two["job"], "train");
  EXPECT_EQ(create("one")["ok"], false) << "it has that one already";
  EXPECT_EQ(rig.monitor.registry().find_id_of("train", {0, "one"})->id, "train");
  EXPECT_EQ(rig.monitor.registry().find_id_of("train", {0, "two"})->id, two["job"]);
  EXPECT_EQ(rig.monitor.registry().find_id_of("train", 0), nullptr);
}

TEST(Commands, SetAnswersTheJobAsPsListsIt) {
  Rig rig;
  rig.join({.name = "x"});
  const json reply = rig.ask({{"op", "set"}, {"target", "x"}, {"share", 2.5}, {"priority", "low"}});
  EXPECT_EQ(reply["name"], "x");
  EXPECT_EQ(reply["share_weight"], 2.5);
  EXPECT_EQ(reply["priority"], "low");
}

TEST(Commands, SetSaysWhatTheNamedSettingsWere) {
  Rig rig;
  rig.join({.name = "x", .memory = "1GiB"});
  const auto before = [&](json request) {
    request["op"] = "set";
    request["target"] = "x";
    return rig.ask(request)["before"];
  };
  EXPECT_EQ(before({{"share", "2"}, {"memory", "2GiB"}, {"limit", "30%"}}),
            (json{{"share", "1"}, {"memory", "1GiB"}, {"limit", "none"}}));
  EXPECT_EQ(before({{"share", "4"}, {"memory", "none"}}),
            (json{{"share", "2"}, {"memory", "2GiB"}}));
  EXPECT_EQ(before({{"priority", "high"}, {"memory", "1GiB"}}),
            (json{{"priority", "normal"}, {"memory", "none"}}));
}

TEST(Commands, SetOfNonsenseChangesNothing) {
  Rig rig;
  const Joined a = rig.join({.name = "x"});
  for (const json& change : {json{{"share", "0"}}, json{{"share", "many"}}, json{{"memory", "-2"}},
                             json{{"priority", ""}, {"share", std::string(100, '1')}},
                             json{{"memory", json::array({1})}}}) {
    json request = {{"op", "set"}, {"target", "x"}};
    request.update(change);
    EXPECT_EQ(rig.ask(request)["code"], kUsage) << request;
  }
  EXPECT_STREQ(a.shim.card().share, "");
}

TEST(Commands, SetCanNotRenameAJob) {
  Rig rig;
  rig.join({.name = "x"});
  rig.ask({{"op", "set"}, {"target", "x"}, {"name", "y"}, {"job", "z"}});
  EXPECT_NE(rig.monitor.registry().find_target("x"), nullptr);
  EXPECT_EQ(rig.monitor.registry().find_target("y"), nullptr);
}

TEST(Commands, StatusHasItsKeys) {
  Rig rig;
  rig.join({.memory = "1GiB"});
  const json reply = rig.ask({{"op", "status"}});
  for (const char* key : {"pid", "uid", "user", "version", "socket", "persist", "uptime_seconds",
                          "means", "policy", "minimum_ratio", "waits"}) {
    EXPECT_TRUE(reply["monitor"].contains(key)) << key;
  }
  ASSERT_EQ(reply["gpus"].size(), 1u);
  EXPECT_EQ(reply["gpus"][0]["simulated"], true);
  EXPECT_EQ(reply["gpus"][0]["memory_reserved_bytes"], kGiB);
  EXPECT_EQ(reply["gpus"][0]["clients"], 1);
}

// What a library of a high job times, as its page shows it.
void wait_for_the_cpu(const Joined& high) {
  high.shim.gate(0).bursts += 5;
  high.shim.gate(0).waited_ns += 5 * 150'000;
  high.shim.gate(0).burst_ns += 5 * 8'000'000;
}

TEST(Commands, ListingsSayForWhatAHighJobWaitsAndWhatFollows) {
  Rig rig;
  const Joined high = rig.runs({.name = "server", .priority = "high"});
  const auto waits_for = [&rig] {
    const json gpu = rig.job()["gpus"][0];
    return gpu["waits_for"];
  };
  const auto gpu = [&rig] { return rig.ask({{"op", "status"}})["gpus"][0]; };
  rig.pass(std::chrono::milliseconds(5));
  EXPECT_EQ(waits_for(), nullptr);
  EXPECT_EQ(gpu()["yield_slice_us"], nullptr);
  EXPECT_EQ(gpu()["yield_reason"], "no job yields to a high one");
  const Joined low = rig.runs({.name = "training", .priority = "low"});
  rig.settle({&high, &low});
  EXPECT_EQ(gpu()["yield_slice_us"], 20);
  EXPECT_EQ(gpu()["yield_reason"],
            "a high job waits for the GPU, or does not say for what it waits");
  EXPECT_NE(high.lane().attention & abi::kTimeBursts, 0u);
  for (int i = 0; i < 20; ++i) {
    wait_for_the_cpu(high);
    rig.pass(std::chrono::milliseconds(50));
    rig.settle({&high, &low});
  }
  EXPECT_EQ(waits_for(), "cpu");
  EXPECT_GT(gpu()["yield_slice_us"], 100);
  EXPECT_EQ(gpu()["yield_reason"],
            "the high jobs wait for their CPU, and the GPU is idle meanwhile");
  rig.ask({{"op", "means"}, {"means", "gate"}});
  rig.settle({&high, &low});
  EXPECT_EQ(gpu()["yield_slice_us"], nullptr);
  EXPECT_EQ(gpu()["yield_reason"], "slices are not in use here");
  EXPECT_EQ(waits_for(), nullptr);
}

TEST(Commands, ForeseenWaitsAreAskedOfTheServerAndSaidInTheStatus) {
  Rig rig;
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"waits", "foreseen"}})["waits"], "foreseen");
  const Joined high = rig.runs({.name = "server", .priority = "high"});
  const Joined low = rig.runs({.name = "training", .priority = "low"});
  rig.settle({&high, &low});
  for (int i = 0; i < 30; ++i) {
    for (unsigned at = 0; at < abi::kCountedBursts; ++at) {
      high.shim.gate(0).counts[at] = 300;
      high.lane().burst_cpu_us[at] = 7850;
      high.lane().burst_waited_us[at] = 150;
    }
    high.lane().launches += 5 * 300;
    high.shim.gate(0).launched = static_cast<std::uint32_t>(high.lane().launches);
    wait_for_the_cpu(high);
    rig.pass(std::chrono::milliseconds(50));
    rig.settle({&high, &low});
  }
  const auto gpu = [&rig] { return rig.ask({{"op", "status"}})["gpus"][0]; };
  EXPECT_EQ(rig.ask({{"op", "status"}})["monitor"]["waits"], "foreseen");
  EXPECT_NE(gpu()["yield_reason"].get<std::string>().find("foreseen"), std::string::npos);
  EXPECT_GE(gpu()["yield_slice_us"], 1000);
  EXPECT_NE(high.lane().attention & abi::kTellWaits, 0u);
  EXPECT_GT(high.shim.gate(0).ring_after, 100u);
  EXPECT_LT(high.shim.gate(0).ring_after, 300u);
  EXPECT_NE(low.lane().attention & abi::kGateArmed, 0u);
  EXPECT_EQ(low.shim.gate(0).closed, 0u);
  high.shim.gate(0).launched = static_cast<std::uint32_t>(high.lane().launches);
  high.lane().launches += 299;
  rig.pass(std::chrono::milliseconds(0));
  EXPECT_EQ(low.shim.gate(0).closed, abi::kClosedByTurn);
  rig.ask({{"op", "policy"}, {"waits", "slices"}});
  EXPECT_EQ(low.shim.gate(0).closed, 0u);
  EXPECT_EQ(high.lane().attention & abi::kTellWaits, 0u);
}

TEST(Commands, StatusWithoutAGpuSaysWhy) {
  Rig rig(0);
  EXPECT_EQ(rig.ask({{"op", "status"}})["monitor"]["no_gpu_reason"], "no GPU here");
}

// The keys are compared with the schema (tests/system/schema_test.cpp).
TEST(Commands, PsTellsWhatAClientUsesAndDid) {
  Rig rig;
  const Joined a = rig.join({.name = "x", .memory = "1GiB"}, ::geteuid());
  a.shim.open_context();
  rig.listed(a) = 8 * kMiB;
  rig.gpus.uses[0][1] = 5 * kMiB;
  ASSERT_TRUE(rig.allocate(a, 100 * kMiB));
  a.lane().launches = 3;
  a.lane().graph_launches = 2;
  a.lane().copies = 1;
  a.lane().link_bytes = 4096;
  a.lane().device_bytes = 512;
  rig.gpus.load = {{{a.client->peer.pid, 0.25}}};
  rig.pass(std::chrono::seconds(1));
  const json reply = rig.ask({{"op", "ps"}});
  ASSERT_EQ(reply["jobs"].size(), 1u);
  const json& job = reply["jobs"][0];
  EXPECT_EQ(job["state"], "running");
  EXPECT_EQ(job["processes"][0]["pid"], a.client->peer.pid);
  EXPECT_EQ(job["processes"][0]["name"], "fake");
  const json& gpu = job["gpus"][0];
  EXPECT_EQ(gpu["memory_overhead_bytes"], 8 * kMiB);
  EXPECT_EQ(gpu["memory_used_bytes"], 108 * kMiB);
  EXPECT_EQ(gpu["launches"], 3);
  EXPECT_EQ(gpu["graph_launches"], 2);
  EXPECT_EQ(gpu["copies"], 1);
  EXPECT_EQ(gpu["copied_link_bytes"], 4096);
  EXPECT_EQ(gpu["copied_device_bytes"], 512);
  EXPECT_EQ(gpu["share_got_ratio"], 0.25);
  EXPECT_EQ(gpu["slice_status"], "none");
  ASSERT_EQ(reply["outside"].size(), 1u);
  EXPECT_EQ(reply["outside"][0]["pid"], 1);
  EXPECT_EQ(reply["outside"][0]["memory_used_bytes"], 5 * kMiB);
  EXPECT_TRUE(reply["outside"][0]["library_layout"].is_null());
}

TEST(Commands, WithoutSamplesTheShareGotIsNull) {
  Rig rig;
  rig.join({});
  EXPECT_TRUE(rig.job()["gpus"][0]["share_got_ratio"].is_null());
}

TEST(Commands, ANameThatIsNoTextIsStillListed) {
  Rig rig;
  wire::Hello hello = hello_of({});
  hello.process[0] = static_cast<char>(0xff);
  rig.join_as({4000, 1000}, hello);
  EXPECT_EQ(rig.ask({{"op", "ps"}})["jobs"].size(), 1u);
}

TEST(Commands, ANameWithControlCharactersReachesNoTerminal) {
  Rig rig;
  wire::Hello hello = hello_of({});
  const char name[] = "a\x1b[31m\nb";
  std::copy(std::begin(name), std::end(name), hello.process);
  rig.join_as({4000, 1000}, hello);
  EXPECT_EQ(rig.job()["processes"][0]["name"], "a?[31m?b");
}

TEST(Commands, RandomBytesAreAnswered) {
  Rig rig;
  const std::string seedling = R"({"op":"create","card":{"name":"a","memory":"1GiB"},"pid":7})";
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    std::string text = seedling;
    for (int i = 0; i < 4; ++i) text[random() % text.size()] = static_cast<char>(random());
    const json reply = json::parse(answer_command(rig.monitor, {1, 1000}, text, rig.now).json);
    ASSERT_TRUE(reply.contains("ok")) << seed;
  }
}

TEST(Commands, DeeplyNestedJsonIsAnswered) {
  Rig rig;
  const std::string deep(60'000, '[');
  EXPECT_FALSE(json::parse(answer_command(rig.monitor, {1, 1000}, deep, rig.now).json)["ok"]);
}

TEST(Commands, WhoOnlyAsksNvmlIsNoClientOfAGpu) {
  Rig rig;
  const Joined observer = rig.join({.name = "asks"}, 1000, 1, wire::kObserver);
  EXPECT_EQ(rig.ask({{"op", "status"}})["gpus"][0]["clients"], 0u);
  EXPECT_EQ(rig.ask({{"op", "status"}})["gpus"][0]["jobs"], 0u);
  const Joined client = rig.join({.name = "works"});
  EXPECT_EQ(rig.ask({{"op", "status"}})["gpus"][0]["clients"], 1u);
}

}  // namespace
}  // namespace switchyard::monitor::test
