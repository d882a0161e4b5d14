// How `ps` draws: in the columns that there are, in any locale, by any format.
#include "tools/ps/ps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "fake_monitor.h"
#include "tools/base/terminal.h"
#include "tools/ps/drawing.h"

namespace switchyard::tools::ps_tests {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr std::uint64_t kGiB = 1ull << 30;

json gpu(unsigned index, std::uint64_t used, std::uint64_t quota = 0) {
  return {{"uuid", "GPU-" + std::to_string(index)},
          {"index", index},
          {"memory_used_bytes", used},
          {"memory_resident_bytes", used},
          {"memory_quota_bytes", quota == 0 ? json(nullptr) : json(quota)},
          {"share_got_ratio", used == 0 ? json(nullptr) : json(0.98)},
          {"share_asked_ratio", 0.5},
          {"launches", used == 0 ? 0 : 7}};
}

json job(const std::string& name, const std::string& user, const std::string& state,
         const std::string& text, std::vector<json> gpus, double since,
         const std::string& command) {
  return {{"job", "j" + name},
          {"name", name},
          {"user", user},
          {"priority", "normal"},
          {"state", state},
          {"state_text", text},
          {"since_seconds", since},
          {"gpus", std::move(gpus)},
          {"processes", {{{"pid", 4711}, {"name", "python3"}}}},
          {"command", command.empty() ? json(nullptr) : json(command)}};
}

// Those of a lab: one that runs, one that is held, one on two GPUs, one that is idle.
json jobs() {
  json all = {
      job("serve", "alice", "running", "running",
          {gpu(0, 81 * kGiB / 10, 20 * kGiB), gpu(1, 0, 20 * kGiB)}, 8040, "python serve.py"),
      job("nightly", "bob", "held", "held: limit 30%", {gpu(0, 4 * kGiB)}, 97200,
          "python train.py --lr 3e-4 --data /data/images --epochs 90"),
      job("ddp", "eve", "running", "running", {gpu(2, 30 * kGiB), gpu(3, 31 * kGiB)}, 750, ""),
      job("eval-of-the-nightly-model", "bob-the-builder", "waiting", "waiting: 8.1 GiB of serve",
          {gpu(0, 0)}, 41, "python eval.py"),
      job("nb", "dan", "idle", "idle", {gpu(0, 5 * kGiB)}, 10800, "jupyter lab")};
  all[1]["gpus"][0]["share_got_estimated"] = true;
  return all;
}

Lines lines(const std::string& text) {
  Lines out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

Lines drawn(std::size_t columns, bool utf8 = true, const Fields& fields = default_fields()) {
  const json all = jobs();
  return lines(draw_table(rows_of(all, false), fields, {columns, utf8}));
}

TEST(PsTable, APipeGetsAllOfIt) {
  EXPECT_EQ(drawn(0)[0],
            "NAME                       USER             GPU  PRIO    STATE                      "
            "GPU%  MEM/QUOTA   AGE  COMMAND");
  EXPECT_EQ(drawn(0)[2],
            "nightly                    bob              0    normal  held: limit 30%            "
            " ~98       4G/-  1d03  python train.py --lr 3e-4 --data /data/images --epochs 90");
}

TEST(PsTable, ARowPerJobFitsEightyColumns) {
  EXPECT_EQ(
      drawn(80),
      (Lines{"NAME         USER     GPU PRIO   STATE              GPU% MEM/QUOTA  AGE COMMAND",
             "serve        alice    0   normal running              98  8.1G/20G 2h14 python …",
             "nightly      bob      0   normal held: limit 30%     ~98      4G/- 1d03 python …",
             "ddp          eve      2,3 normal running              98     61G/-  12m python3",
             "eval-of-the… bob-the… -   normal waiting: 8.1 GiB …    -       -/-  41s python …",
             "nb           dan      0   normal idle                 98      5G/- 3h00 jupyter…"}));
}

TEST(PsTable, AQuotaThatIsAPartIsAPartWhereThereIsNoGpuYet) {
  json all = jobs();
  all[0]["memory_quota_ratio"] = 0.45;
  all[3]["memory_quota_ratio"] = 0.45;
  const Lines table = lines(draw_table(rows_of(all, false), default_fields(), {80, true}));
  EXPECT_NE(table[1].find(" 8.1G/20G "), std::string::npos) << table[1];
  EXPECT_NE(table[4].find(" -/45% "), std::string::npos) << table[4];
}

TEST(PsTable, EachWidthIsKept) {
  for (const std::size_t columns : {58, 60, 66, 72, 80, 100, 120, 132, 200}) {
    for (const bool utf8 : {true, false}) {
      const Lines table = drawn(columns, utf8);
      ASSERT_EQ(table.size(), 6u);
      for (const std::string& line : table) EXPECT_LE(width_of(line), columns) << line;
    }
  }
}

TEST(PsTable, AWideTerminalCutsNothing) {
  for (const std::string& line : drawn(200)) EXPECT_EQ(line.find("…"), line.npos) << line;
  EXPECT_EQ(drawn(200), drawn(0));
}

TEST(PsTable, ALocaleWithoutUtf8GetsAsciiAlone) {
  json all = jobs();
  all[0]["command"] = "python größe.py";
  const std::string text = draw_table(rows_of(all, false), default_fields(), {80, false});
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  })) << text;
  EXPECT_NE(text.find("eval-of-the~"), text.npos) << text;
  EXPECT_NE(draw_table(rows_of(all, false), default_fields(), {0, false}).find("python gr??e.py"),
            text.npos);
}

TEST(PsTable, ACharacterOfSeveralBytesIsNotCutInItsMiddle) {
  EXPECT_EQ(cut("größe", 5, true), "größe");
  EXPECT_EQ(cut("größe", 4, true), "grö…");
  EXPECT_EQ(cut("größe", 1, true), "…");
  EXPECT_EQ(cut("größe", 0, true), "");
  EXPECT_EQ(cut("large", 4, false), "lar~");
}

TEST(PsTable, PerGpuHasARowForEach) {
  const json all = jobs();
  const Lines table = lines(draw_table(rows_of(all, true), default_fields(), {0, true}));
  ASSERT_EQ(table.size(), 8u);
  EXPECT_NE(table[1].find("  0    normal  "), std::string::npos) << table[1];
  EXPECT_NE(table[2].find("  1    normal  "), std::string::npos) << table[2];
  EXPECT_NE(table[2].find("-/20G"), std::string::npos) << table[2];
}

TEST(PsTable, AMoveHasItsDirectionAndItsProgress) {
  json all = json::array({job("train", "eve", "moving", "moving out", {gpu(0, 8 * kGiB)}, 5, "")});
  json& one = all[0];
  one["residency"] = "moving";
  one["reason"] = "swap-out";
  one["gpus"][0]["memory_swappable_bytes"] = 8 * kGiB;
  one["gpus"][0]["memory_swapped_bytes"] = 2 * kGiB;
  const auto state = [&] { return *draw_format(rows_of(all, false), "{state}"); };
  EXPECT_EQ(state(), "moving out 25%\n");
  one["state_text"] = "moving in";
  one["reason"] = "returns";
  EXPECT_EQ(state(), "moving in 75%\n");
  one["gpus"][0]["memory_swappable_bytes"] = 0;
  EXPECT_EQ(state(), "moving in\n") << "nobody knows how much it is";
}

TEST(PsTable, ARankThatOthersWaitForIsTheState) {
  json all = json::array({job("ddp", "eve", "idle", "idle", {gpu(0, kGiB)}, 5, "")});
  all[0]["stalls"] = {{{"rank", 1}}};
  EXPECT_EQ(*draw_format(rows_of(all, false), "{state}"), "stalled: rank 1\n");
}

TEST(PsTable, TheSliceIsThatOfTheFirstGpuWhereTheDriverWasAsked) {
  json all = json::array(
      {job("ddp", "eve", "running", "running", {gpu(0, 0), gpu(1, kGiB), gpu(2, kGiB)}, 5, "")});
  const auto slice_on = [&](std::size_t at, const char* status, unsigned us) {
    all[0]["gpus"][at]["slice_status"] = status;
    all[0]["gpus"][at]["slice_in_force_us"] = us;
  };
  slice_on(0, "none", 0);
  slice_on(1, "refused", 2000);
  slice_on(2, "applied", 500);
  EXPECT_EQ(*draw_format(rows_of(all, false), "{slice}"), "2000 us !\n");
}

TEST(PsFormat, FieldsAreReplacedAndALineIsAJob) {
  const json all = jobs();
  const auto rows = rows_of(all, false);
  EXPECT_EQ(lines(*draw_format(rows, "{name}\\t{memory} {{x}} 100%"))[0],
            "serve\t8.1G/20G {x} 100%");
  EXPECT_EQ(lines(*draw_format(rows, "{id}")),
            (Lines{"jserve", "jnightly", "jddp", "jeval-of-the-nightly-model", "jnb"}));
  EXPECT_EQ(*draw_format({}, "{name}"), "");
  for (const std::string& name : field_names()) {
    EXPECT_TRUE(draw_format(rows, "{" + name + "}")) << name;
  }
}

TEST(PsFormat, AContainerIsCutAsDockerCutsIt) {
  json all = jobs();
  all[0]["container"] = "0123456789abcdef" + std::string(48, '0');
  all[0]["pod"] = "2f2c7a4e-1111-4c7e-9a6b-0123456789ab";
  all[0]["unit"] = nullptr;
  const auto said = lines(*draw_format(rows_of(all, false), "{container} {pod} {unit}"));
  EXPECT_EQ(said[0], "0123456789ab 2f2c7a4e-1111-4c7e-9a6b-0123456789ab -");
  EXPECT_EQ(said[1], "- - -") << "an older monitor does not tell";
}

TEST(PsFormat, AnUnknownFieldIsAnErrorThatNamesThoseThereAre) {
  const auto none = draw_format({}, "{nam}");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, kUsage);
  EXPECT_EQ(none.error().text.rfind("--format has no field 'nam': there are name, id, user", 0),
            0u);
}

TEST(PsSummary, SaysWhatRunsWhatIsIdleAndWhatIsFree) {
  json listing = {{"jobs", jobs()}};
  const json gpus = {gpu(0, 0), gpu(1, 0), gpu(2, 0), gpu(3, 0), gpu(4, 0), gpu(5, 0), gpu(6, 0)};
  EXPECT_EQ(summary_of(listing, gpus),
            "2 of 5 jobs run; nb is idle and holds 5G; GPUs 1,4-6 are free");
  listing["outside"] = {{{"pid", 7}, {"gpu_uuid", "GPU-1"}, {"memory_used_bytes", 8 << 20}}};
  EXPECT_EQ(summary_of(listing, gpus),
            "2 of 5 jobs run; nb is idle and holds 5G; GPUs 4-6 are free; 1 unmanaged process has "
            "8M");
  EXPECT_EQ(summary_of({{"jobs", json::array({jobs()[0]})}}, json::array({gpu(0, 0)})),
            "1 of 1 job runs; no GPU is free");
  EXPECT_EQ(summary_of({{"jobs", json::array({jobs()[3]})}}, json::array({gpu(0, 0)})),
            "0 of 1 job run; GPU 0 is free");
}

TEST(PsWords, BytesTimesAndNumbersAreShort) {
  EXPECT_EQ(compact_bytes(0), "0");
  EXPECT_EQ(compact_bytes(512), "512B");
  EXPECT_EQ(compact_bytes(264 << 20), "264M");
  EXPECT_EQ(compact_bytes(1023 << 20), "1G") << "never wider than five columns";
  EXPECT_EQ(compact_bytes(81 * kGiB / 10), "8.1G");
  EXPECT_EQ(compact_bytes(80 * kGiB), "80G");
  EXPECT_EQ(compact_bytes(141 * kGiB), "141G");
  EXPECT_EQ(compact_seconds(41), "41s");
  EXPECT_EQ(compact_seconds(3599), "59m");
  EXPECT_EQ(compact_seconds(8040), "2h14");
  EXPECT_EQ(compact_seconds(97200), "1d03");
  EXPECT_EQ(compact_numbers({}), "-");
  EXPECT_EQ(compact_numbers({0, 1, 3, 4, 5}), "0,1,3-5");
}

TEST(PsWords, ColumnsAreThoseOfTheEnvironmentAndNoneInAPipe) {
  ::setenv("COLUMNS", "72", 1);
  EXPECT_EQ(terminal_columns(), 72u);
  ::setenv("COLUMNS", "wide", 1);
  EXPECT_EQ(terminal_columns(), 0u) << "this test's output is no terminal";
  ::unsetenv("COLUMNS");
  EXPECT_EQ(filled("one two three", 8), "one two\nthree");
  EXPECT_EQ(filled("one two three", 0), "one two three");
  EXPECT_EQ(filled("one 1234567890 two", 5), "one\n1234567890\ntwo");
}

struct Said : CommandEnd {
  std::vector<json> asked;
};

// `ps WORDS...`, where the monitor lists `all` in parts of `part` jobs.
Said ps(std::vector<std::string> words, const json& all, std::size_t part = 1000) {
  Said said;
  const auto monitor = FakeMonitor::answering([&](const json& request) -> json {
    said.asked.push_back(request);
    if (request["op"] == "status") return {{"ok", true}, {"gpus", {gpu(0, 0), gpu(9, 0)}}};
    const std::size_t after = request["after"];
    json reply = {{"ok", true}, {"jobs", json::array()}};
    for (std::size_t i = after; i < std::min(after + part, all.size()); ++i) {
      reply["jobs"].push_back(all[i]);
    }
    if (after + part < all.size()) reply["more_after"] = after + part;
    return reply;
  });
  words.insert(words.begin(), "ps");
  static_cast<CommandEnd&>(said) = run_command(monitor.socket(), {&add_ps}, std::move(words));
  return said;
}

TEST(PsCommand, TheLastLineCountsAllJobsAndTheTableThoseSelected) {
  const Said said = ps({"--user", "bob"}, jobs());
  ASSERT_EQ(said.code, kOk) << said.err;
  EXPECT_EQ(lines(said.out).size(), 3u) << said.out;
  EXPECT_EQ(lines(said.out).back(), "2 of 5 jobs run; nb is idle and holds 5G; GPU 9 is free");
}

TEST(PsCommand, QuietIsIdsAndWideHasMoreColumns) {
  EXPECT_EQ(ps({"-q", "serve", "nb"}, jobs()).out, "jserve\njnb\n");
  EXPECT_EQ(ps({"--format", "{name}", "d*"}, jobs()).out, "ddp\n");
  const std::string wide = lines(ps({"-o", "wide"}, jobs()).out)[0];
  for (const char* heading : {"ID", "CONTAINER", "ERR%", "ASKED%", "LIMIT", "DEADLINE", "RESIDENT",
                              "SLICE", "LAUNCHES", "REFUSED", "RANKS", "PIDS", "COMMAND"}) {
    EXPECT_NE(wide.find(heading), std::string::npos) << heading;
  }
}

// Over seconds an estimate may be wrong by two thirds (docs/guide/history.md).
TEST(PsCommand, ByHowMuchAShareMayBeWrongIsANumber) {
  json one = jobs()[1];
  one["gpus"][0]["share_got_ratio"] = 0.3;
  json two = jobs()[0];
  two["gpus"][0]["share_got_ratio"] = 0.3;
  const json all = json::array({one, two});
  EXPECT_EQ(ps({"--format", "{gpu_percent} {error_percent}"}, all).out, "~30 20\n30 0\n");
  const json listed = json::parse(ps({"--json"}, all).out)["jobs"];
  EXPECT_NEAR(listed[0]["gpus"][0]["share_got_error_ratio"], 0.2, 1e-9);
  EXPECT_EQ(listed[1]["gpus"][0]["share_got_error_ratio"], 0);
  json both = one;
  both["gpus"].push_back(both["gpus"][0]);
  both["gpus"][1]["share_got_estimated"] = false;
  EXPECT_EQ(ps({"--format", "{gpu_percent}"}, json::array({both})).out, "~30\n")
      << "a part of it is an estimate";
  one["gpus"][0]["share_got_ratio"] = nullptr;
  const json unknown = json::parse(ps({"--json"}, json::array({one})).out)["jobs"];
  EXPECT_TRUE(unknown[0]["gpus"][0]["share_got_error_ratio"].is_null());
}

TEST(PsCommand, OutputJsonIsTheOptionJson) {
  const json first = json::parse(ps({"-o", "json", "nb"}, jobs()).out);
  ASSERT_EQ(first["jobs"].size(), 1u);
  EXPECT_EQ(first["jobs"][0]["name"], "nb");
  EXPECT_EQ(json::parse(ps({"--json"}, jobs()).out)["jobs"].size(), 5u);
}

TEST(PsCommand, QuietJsonIsTheWholeListing) {
  const Said said = ps({"-q", "--json"}, jobs());
  EXPECT_FALSE(said.asked.at(0).contains("brief")) << said.asked.at(0);
  EXPECT_EQ(json::parse(said.out), json::parse(ps({"--json"}, jobs()).out));
}

TEST(PsCommand, BadWordsAreErrors) {
  EXPECT_EQ(ps({"-o", "yaml"}, jobs()).code, kUsage);
  EXPECT_EQ(ps({"--format", "{x}"}, jobs()).code, kUsage);
  EXPECT_EQ(ps({"--state", "x"}, jobs()).code, kUsage);
  for (const char* option : {"--user", "--gpu", "--state"}) {
    const Said said = ps({"-q", option, ""}, jobs());
    EXPECT_EQ(said.code, kUsage) << option;
    EXPECT_EQ(said.out, "") << option << " selects all jobs";
  }
  EXPECT_EQ(ps({"--gpu", "foo"}, jobs()).code, kUsage);
  EXPECT_EQ(ps({"nobody"}, jobs()).code, kNoSuchJobOrGpu);
  const Said unknown = ps({"-q", "--gpu", "9,8"}, jobs());
  EXPECT_EQ(unknown.code, kNoSuchJobOrGpu);
  EXPECT_NE(unknown.err.find("there is no GPU 8"), std::string::npos) << unknown.err;
  EXPECT_EQ(ps({"--gpu", "9"}, jobs()).code, kOk) << "no job is there";
}

// Not by the clock: what grows with the jobs is the number of parts alone.
TEST(PsCommand, ThreeHundredJobsAreOneRequestForEachPartAndOneForTheGpus) {
  json many = json::array();
  for (int i = 0; i < 300; ++i) {
    many.push_back(
        job("n" + std::to_string(i), "eve", "running", "running", {gpu(0, kGiB)}, 5, ""));
  }
  const Said said = ps({}, many, 100);
  EXPECT_EQ(said.asked.size(), 4u);
  EXPECT_EQ(lines(said.out).size(), 302u);
  EXPECT_EQ(ps({"-q"}, many, 100).asked.size(), 3u) << "ids need no GPUs";
}

}  // namespace
}  // namespace switchyard::tools::ps_tests
