// What `switchyard trace` writes: bytes for Perfetto, the page, and the command itself.
#include "tools/trace/trace.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>

#include "switchyard/status.h"
#include "tests/tools/fake_monitor.h"
#include "tests/tools/trace_scene.h"
#include "tools/trace/page.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/protobuf.h"

namespace switchyard::tools::trace {
namespace {

using nlohmann::json;

TEST(TraceProtobuf, FieldsHaveTheBytesOfTheirWireTypes) {
  Message inner;
  inner.number(1, 150);
  EXPECT_EQ(inner.bytes(), std::string("\x08\x96\x01", 3));
  Message out;
  out.text(2, "testing");
  EXPECT_EQ(out.bytes(), std::string("\x12\x07testing"));
  out = {};
  out.message(3, inner);
  EXPECT_EQ(out.bytes(), std::string("\x1a\x03\x08\x96\x01", 5));
  out = {};
  out.fixed64(16, 1);
  EXPECT_EQ(out.bytes(), std::string("\x81\x01\x01\0\0\0\0\0\0\0", 10));
  out = {};
  out.number(1, ~std::uint64_t{0});
  EXPECT_EQ(out.bytes(), "\x08" + std::string(9, '\xff') + "\x01");
  out = {};
  out.real(1, 1.0);
  EXPECT_EQ(out.bytes(), std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9));
}

// The definitions of Perfetto itself decode a trace in scripts/check_trace.sh.
TEST(TracePerfetto, AMinuteOfEightJobsIsBelowItsBound) {
  const std::string trace = perfetto_of(busy_minute().timeline());
  EXPECT_LT(trace.size(), 20u << 20);
  EXPECT_GT(trace.size(), 1u << 20) << "it has all of the turns";
}

TEST(TracePerfetto, ANameStandsInItOnce) {
  Scene scene(1000);
  const JobKey a = scene.job("alpha"), b = scene.job("beta", kRuns, 2);
  for (int at = 10; at < 900; at += 20) {
    scene.turn(at, a, b);
    scene.turn(at + 10, b, a);
  }
  const std::string trace = perfetto_of(scene.timeline());
  std::size_t found = 0;
  const std::string name = "waiting: turn of alpha";
  for (auto at = trace.find(name); at != std::string::npos; at = trace.find(name, at + 1)) ++found;
  EXPECT_EQ(found, 1u);
}

// GpuInfo as Perfetto's definitions have it: name, vendor, model, 16 bytes of UUID, address.
TEST(TracePerfetto, EachGpuSaysWhatItIs) {
  Scene scene(10);
  scene.recording.gpus[0].name = "NVIDIA H200";
  scene.recording.gpus[0].uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
  scene.recording.gpus[0].pci_bus_id = "00000000:3B:00.0";
  Message about, all;
  about.text(1, "GPU 0");
  about.text(2, "NVIDIA");
  about.text(3, "NVIDIA H200");
  about.text(5,
             std::string("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16));
  about.text(7, "0000:3b:00.0");
  all.message(1, about);
  Message packet;
  packet.message(128, all);
  EXPECT_NE(perfetto_of(scene.timeline()).find(packet.bytes()), std::string::npos);
  scene.recording.gpus[0].uuid = "GPU-odd";
  EXPECT_EQ(perfetto_of(scene.timeline()).find("\xee\xff"), std::string::npos);
}

// An event of type 5 with a name begins a state, one without a name ends the last.
TEST(TracePerfetto, AJobHasATrackOfItsStates) {
  Scene scene(100);
  const JobKey a = scene.job("alpha"), b = scene.job("beta", kRuns, 2);
  scene.turn(40, a, b);
  const std::string trace = perfetto_of(scene.timeline());
  const auto times = [&](const std::string& part) {
    int found = 0;
    for (auto at = trace.find(part); at != std::string::npos; at = trace.find(part, at + 1))
      ++found;
    return found;
  };
  // Field 9 is the type. Each of two jobs has two states, and their end.
  EXPECT_EQ(times(std::string("\x48\x05", 2)), 2 * 2 + 2);
  EXPECT_EQ(times(std::string("\x92\x01\x00", 3)), 2) << "field 18: a track of states";
}

// The JSON text that stands in the page.
std::string data_of(const std::string& page) {
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const auto at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

TEST(TracePage, ItsDataIsOneTextWithoutMarkupWhateverTheNames) {
  Scene scene(100);
  const std::string hostile = "</script><!--<b>&\xe2\x80\xa8\xff\"\\";
  const JobKey a = scene.job(hostile), b = scene.job("b", kRuns, 2);
  scene.recording.jobs[a].user = hostile;
  scene.turn(10, a, b);
  const std::string text = data_of(page_of(scene.timeline(), hostile));
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
  const json data = json::parse(text, nullptr, false);
  ASSERT_TRUE(data.is_object()) << "nothing ends it before its end";
  const std::string shown = data["lanes"][0]["name"];
  EXPECT_EQ(shown.substr(0, 17), hostile.substr(0, 17)) << "the name itself is unchanged";
  EXPECT_EQ(data["host"].get<std::string>().substr(0, 9), "</script>");
}

TEST(TracePage, NeedsNothingElse) {
  const std::string page = page_of(Scene(100).timeline(), "host");
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  for (const char* outside : {"http://", "https://", "src=", "href=", "import ", "fetch("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(TracePage, SpansFollowEachOtherAndAddUp) {
  const json data = page_data_of(busy_minute().timeline());
  ASSERT_EQ(data["lanes"].size(), 8u);
  for (const json& lane : data["lanes"]) {
    std::int64_t at = lane["begin"];
    const json& spans = lane["spans"];
    for (std::size_t i = 0; i < spans.size(); i += 2) {
      at += spans[i].get<std::int64_t>();
      ASSERT_LT(spans[i + 1], data["texts"].size());
    }
    EXPECT_EQ(at, data["span"]);
    EXPECT_EQ(lane["samples"].size(), 5u * 300);
  }
  EXPECT_LT(data.dump().size(), 20u << 20);
}

TEST(TracePage, TellsWhoRanAndWhoSharedTheGpu) {
  Scene scene(40);
  scene.job("a");
  const JobKey b = scene.job("b", kIdles);
  scene.state(20, b, kRuns, kIdles);
  const json data = page_data_of(scene.timeline());
  EXPECT_EQ(data["gpus"][0]["users"],
            (json::array({{0, 20'000, 0, 0, 1}, {20'000, 20'000, 1, 0}})));
  EXPECT_EQ(data["names"], (json{"a + b", "a"}));
}

// --- the command ---

const std::int64_t kNow = kBegin + 100 * kMs;

json words() {
  return {{"ok", true},
          {"now_ns", kNow},
          {"started_ns", 0},
          {"unix_seconds", 1.7e9},
          {"kinds", {"", "gate", "state", "paused"}},
          {"states", {"unknown", "running", "waiting"}},
          {"reasons", {"", "turn"}},
          {"gpus", {{{"index", 0}, {"name", "Fake"}, {"uuid", "GPU-0"}}}}};
}

json part(json records, std::uint64_t last, bool more, std::uint64_t lost = 0) {
  return {{"ok", true},
          {"records", std::move(records)},
          {"last", last},
          {"more", more},
          {"lost", lost}};
}

json gate_record(std::int64_t at, int job, std::uint64_t closed, std::uint64_t before) {
  return {at, 1, job, 0, 1, 100 + job, 1000, before << 32 | closed, 0, 0, 0, 0};
}

json jobs() {
  const auto job = [](int key, const char* name, int closed) {
    return json{{"key", key},
                {"job", "id"},
                {"name", name},
                {"user", "anna"},
                {"state", {1, 0, 0}},
                {"gpus", json::array({{1, {1, 0, 0}}})},
                {"gates", json::array({{1, 100 + key, closed}})}};
  };
  return {{"ok", true}, {"jobs", {job(1, "a", 2), job(2, "b", 0)}}, {"more_after", nullptr}};
}

// Two jobs whose turn goes from one to the other, in two parts.
json answer(const json& request) {
  const std::string of = request.value("of", "");
  if (of == "words") return words();
  if (of == "jobs") return jobs();
  if (of == "changes" || of == "samples") return part(json::array(), 0, false);
  const bool first = !request.contains("since");
  return part(json::array({first ? gate_record(kBegin + 40 * kMs, 1, 2, 0)
                                 : gate_record(kBegin + 50 * kMs, 2, 0, 2)}),
              first ? 7 : 8, first);
}

class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/trace-XXXXXX";
    const int fd = ::mkstemp(name);
    ASSERT_GE(fd, 0);
    ::close(fd);
    file_ = name;
  }
  void TearDown() override {
    ::unlink(file_.c_str());
    ::unsetenv("SWITCHYARD_SOCKET");
  }
  CommandEnd trace(std::vector<std::string> words, FakeMonitor::Answer play = answer) {
    const FakeMonitor monitor = FakeMonitor::answering(std::move(play));
    words.insert(words.begin(), "trace");
    return run_command(monitor.socket(), {&add_trace}, std::move(words));
  }
  std::string written() const {
    std::ifstream in(file_);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }

  std::string file_;
};

TEST_F(Trace, PartsArePutTogether) {
  const CommandEnd end = trace({"--html", "-o", file_, "--last", "100ms"});
  EXPECT_EQ(end.code, kOk) << end.err;
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find("0.1 s of 2 jobs on 1 GPU, 4 spans"), std::string::npos) << end.err;
  const json data = json::parse(data_of(written()));
  EXPECT_EQ(data["lanes"][0]["name"], "a");
  EXPECT_EQ(data["lanes"][0]["spans"], (json{40'000, 0, 60'000, 1}));
  EXPECT_EQ(data["lanes"][1]["spans"], (json{50'000, 2, 50'000, 0}));
  EXPECT_EQ(data["texts"][1], (json{"waiting", "waiting: turn of b"}));
  EXPECT_EQ(data["arrows"], (json::array({{0, 40'000, 0, 50'000, 1}})));
}

TEST_F(Trace, OnlyTheJobsThatAreNamedAreWritten) {
  const CommandEnd end = trace({"b", "--html", "-o", file_, "--last", "100ms"});
  EXPECT_EQ(end.code, kOk) << end.err;
  const json lanes = json::parse(data_of(written()))["lanes"];
  ASSERT_EQ(lanes.size(), 1u);
  EXPECT_EQ(lanes[0]["name"], "b");
  const std::string before = written();
  EXPECT_EQ(trace({"none", "-o", file_, "--last", "100ms"}).code, kNoSuchJobOrGpu);
  EXPECT_EQ(trace({"--gpu", "9", "-o", file_, "--last", "100ms"}).code, kNoSuchJobOrGpu);
  EXPECT_EQ(written(), before);
  EXPECT_EQ(trace({"--gpu", "0", "-o", file_, "--last", "100ms"}).code, kOk);
}

TEST_F(Trace, OnAPipeItIsTheTraceAlone) {
  const CommandEnd end = trace({"-o", "-", "--last", "100ms"});
  EXPECT_EQ(end.code, kOk) << end.err;
  EXPECT_EQ(end.out.substr(0, 1), "\x0a") << "a packet of a trace";
  EXPECT_NE(end.out.find("waiting: turn of b"), std::string::npos);
}

TEST_F(Trace, WhatTheMonitorHadNoRoomForIsSaid) {
  const auto play = [](const json& request) {
    json out = answer(request);
    if (request.value("of", "") == "turns" && !request.contains("since")) out["lost"] = 5;
    return out;
  };
  const CommandEnd end = trace({"--html", "-o", file_, "--last", "100ms"}, play);
  EXPECT_NE(end.err.find("no room for more than the last 0.1 s"), std::string::npos) << end.err;
  EXPECT_EQ(json::parse(data_of(written()))["span"], 60'000) << "from the oldest event on";
}

TEST_F(Trace, AMonitorThatRecordsAsFastAsWeReadIsNotReadForEver) {
  std::atomic<int> asked{0};
  const auto play = [&](const json& request) {
    if (request.value("of", "") != "turns") return answer(request);
    const int part_number = ++asked;
    return part(json::array({gate_record(kNow + part_number * kMs, 1, 2, 0)}),
                static_cast<std::uint64_t>(part_number), true);
  };
  EXPECT_EQ(trace({"-o", file_}, play).code, kOk);
  EXPECT_EQ(asked, 1);
}

TEST_F(Trace, BadValuesAreRefusedBeforeAnythingIsWritten) {
  EXPECT_EQ(trace({}).code, kUsage);
  EXPECT_EQ(trace({"-o", file_, "--last", "61s"}).code, kUsage);
  EXPECT_EQ(trace({"-o", file_, "--last", "0"}).code, kUsage);
  EXPECT_EQ(trace({"-o", file_, "--seconds", "soon"}).code, kUsage);
  EXPECT_EQ(trace({"-o", file_, "--last", "1s", "--seconds", "1s"}).code, kUsage);
  EXPECT_EQ(written(), "");
}

TEST_F(Trace, AFileThatCannotBeWrittenIsAnError) {
  const CommandEnd end = trace({"-o", "/nowhere/t.pftrace", "--last", "100ms"});
  EXPECT_EQ(end.code, kFailure);
  EXPECT_NE(end.err.find("cannot write /nowhere/t.pftrace: No such file"), std::string::npos);
  EXPECT_EQ(trace({"-o", "/dev/full", "--last", "100ms"}).code, kFailure);
}

TEST_F(Trace, OfAMonitorThatTellsNonsenseNothingIsBelieved) {
  const auto play = [](const json& request) {
    if (request.value("of", "") == "words") return words();
    return json{
        {"ok", true},
        {"records", {nullptr, "x", {1}, {"a", "b"}, {1e30, -1, -1, -1, -1, -1, -1, -1}}},
        {"jobs", {nullptr, {{"key", -1}, {"gpus", {1, {1}}}, {"gates", {1}}, {"state", 1}}}},
        {"last", 1},
        {"more", false}};
  };
  EXPECT_EQ(trace({"-o", file_}, play).code, kOk);
}

}  // namespace
}  // namespace switchyard::tools::trace
