// What `top` shows and does, without a terminal: its rows, its keys, its lines, its signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "fake_monitor.h"
#include "tests/tools/chosen.h"
#include "tools/base/child.h"
#include "tools/base/terminal.h"
#include "tools/top/frame.h"
#include "tools/top/model.h"
#include "tools/top/orders.h"

namespace switchyard::tools::top {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using Texts = std::vector<std::string>;

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr Time kNow{seconds(1000)};

json job(const std::string& name, double share, std::uint64_t bytes, std::uint64_t quota = 0) {
  return {{"job", "j" + name},
          {"name", name},
          {"user", "alice"},
          {"priority", "normal"},
          {"state", "running"},
          {"state_text", "running"},
          {"since_seconds", 60.0},
          {"memory_quota_bytes", quota == 0 ? json() : json(quota)},
          {"processes", {{{"pid", 4711}, {"name", "python3"}}}},
          {"gpus",
           {{{"uuid", "GPU-0"},
             {"index", 0},
             {"active", true},
             {"memory_used_bytes", bytes},
             {"share_got_ratio", share < 0 ? json() : json(share)}}}}};
}

json gpu(unsigned index, const std::string& name = "NVIDIA H200") {
  return {{"uuid", "GPU-" + std::to_string(index)},
          {"index", index},
          {"name", name},
          {"utilisation_ratio", 0.98},
          {"memory_used_bytes", 81 * kGiB},
          {"memory_total_bytes", 141 * kGiB},
          {"temperature_celsius", 54},
          {"power_watts", 611.6}};
}

json stranger(unsigned pid) {
  return {{"pid", pid},
          {"name", "python"},
          {"user", "bert"},
          {"gpu_uuid", "GPU-0"},
          {"gpu_index", 0},
          {"memory_used_bytes", 3 * kGiB},
          {"share_got_ratio", 0.37},
          {"since_seconds", 65.0}};
}

Look seen(json jobs, json outside = json::array(), json gpus = json::array({gpu(0)})) {
  return {{{"jobs", std::move(jobs)}, {"outside", std::move(outside)}},
          {{"gpus", std::move(gpus)}},
          "",
          ""};
}

// A service that works, a training that does not, and a stranger.
Model lab() {
  json all = json::array({job("train", 0.2, 40 * kGiB), job("serve", 0.75, 8 * kGiB, 10 * kGiB)});
  all[0]["state"] = "waiting";
  all[0]["state_text"] = "waiting: 8.1 GiB of serve";
  Model model;
  model.take(seen(all, json::array({stranger(48213)})), kNow);
  return model;
}

Texts names(const Model& model) {
  Texts out;
  for (const auto& entry : model.entries()) out.push_back(entry.job["name"]);
  return out;
}

Texts texts(const std::vector<Line>& lines) {
  Texts out;
  for (const Line& line : lines) {
    std::string text;
    for (const Table::Cell& piece : line.pieces) text += piece.text;
    out.push_back(text);
  }
  return out;
}

std::string whole(const std::vector<Line>& lines) {
  std::string out;
  for (const std::string& line : texts(lines)) out += line + "\n";
  return out;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TopModel, JobsStandBeforeStrangersAndSIsTheNextOrder) {
  Model model = lab();
  EXPECT_EQ(names(model), (Texts{"serve", "train", "~python"}));
  model.press('s', 10);
  EXPECT_EQ(names(model), (Texts{"train", "serve", "~python"})) << "by memory";
  model.press('s', 10);
  model.press('s', 10);
  EXPECT_EQ(model.sort(), Sort::kName);
  EXPECT_EQ(names(model), (Texts{"serve", "train", "~python"}));
  model.press('s', 10);
  EXPECT_EQ(model.sort(), Sort::kShare);
}

TEST(TopModel, ASelectionStaysWithItsJobAndFallsToWhatStandsInItsPlace) {
  Model model = lab();
  EXPECT_EQ(model.selected()->id, "jserve") << "the first";
  model.press(kDown, 10);
  EXPECT_EQ(model.selected()->id, "jtrain");
  model.take(seen(json::array({job("train", 0.9, kGiB), job("serve", 0.1, kGiB)})), kNow);
  EXPECT_EQ(model.place(), 0u) << "it is the first now";
  EXPECT_EQ(model.selected()->id, "jtrain");
  model.take(seen(json::array({job("serve", 0.1, kGiB)})), kNow);
  EXPECT_EQ(model.selected()->id, "jserve");
  model.take(seen(json::array({job("new", 0.9, kGiB), job("serve", 0.1, kGiB)})), kNow);
  EXPECT_EQ(model.selected()->id, "jserve") << "that is the selected one now";
  model.take(seen(json::array()), kNow);
  EXPECT_EQ(model.selected(), nullptr);
  EXPECT_FALSE(model.press('p', 10));
  EXPECT_EQ(model.message(), "there is no job");
}

TEST(TopModel, KeysMoveTheSelectionWithinTheRows) {
  json all = json::array();
  for (int i = 0; i < 30; ++i) all.push_back(job("j" + std::to_string(100 + i), 0.5, kGiB));
  Model model;
  model.take(seen(all), kNow);
  const std::pair<int, std::size_t> steps[] = {{kUp, 0},        {kDown, 1},  {kPageDown, 11},
                                               {kPageDown, 21}, {kLast, 29}, {kDown, 29},
                                               {kPageUp, 19},   {kHome, 0},  {kPageUp, 0}};
  for (const auto& [key, place] : steps) {
    model.press(key, 10);
    EXPECT_EQ(model.place(), place) << key - kUp;
  }
}

TEST(TopModel, OnlyYMakesAnOrderOfAQuestion) {
  Model model = lab();
  for (const int key : std::initializer_list<int>{'n', 'p', 'q', '\n', kDown}) {
    EXPECT_FALSE(model.press('k', 10));
    ASSERT_TRUE(model.question());
    EXPECT_FALSE(model.press(key, 10)) << key;
    EXPECT_FALSE(model.question());
    EXPECT_EQ(model.message(), "nothing was changed");
  }
  EXPECT_FALSE(model.press('y', 10)) << "of no question";
  const std::pair<int, Order::What> keys[] = {
      {'p', Order::What::kPause}, {'r', Order::What::kResume}, {'k', Order::What::kEnd}};
  for (const auto& [key, what] : keys) {
    EXPECT_FALSE(model.press(key, 10));
    const auto order = model.press('y', 10);
    ASSERT_TRUE(order);
    EXPECT_EQ(order->what, what);
    EXPECT_EQ(order->id, "jserve");
  }
}

TEST(TopModel, AnOrderIsOfTheJobThatWasAskedFor) {
  Model model = lab();
  model.press('k', 10);
  // Meanwhile another job came to stand there.
  model.take(seen(json::array({job("train", 0.9, kGiB), job("serve", 0.1, kGiB)})), kNow);
  EXPECT_EQ(model.press('y', 10)->id, "jserve");
}

TEST(TopModel, PriorityHasTwoEnds) {
  const auto ordered = [](const char* from, int key) -> std::string {
    Model model;
    json all = json::array({job("a", 0.5, kGiB)});
    all[0]["priority"] = from;
    model.take(seen(all), kNow);
    model.press(key, 10);
    const auto order = model.press('y', 10);
    return order ? order->priority : "";
  };
  EXPECT_EQ(ordered("low", '+'), "normal");
  EXPECT_EQ(ordered("normal", '='), "high");
  EXPECT_EQ(ordered("high", '-'), "normal");
  EXPECT_EQ(ordered("high", '+'), "");
  EXPECT_EQ(ordered("low", '-'), "");
  EXPECT_EQ(ordered("urgent", '-'), "") << "of a newer monitor";
}

TEST(TopModel, AStrangerIsShownAndNotChanged) {
  Model model = lab();
  model.press(kLast, 10);
  for (const int key : {'p', 'r', '+', '-', 'k'}) {
    EXPECT_FALSE(model.press(key, 10));
    EXPECT_FALSE(model.question()) << key;
    EXPECT_TRUE(has(model.message(), "~python is unmanaged")) << model.message();
  }
}

TEST(TopModel, ThePastIsOfTheLastListingsAndGoesWithItsJob) {
  Model model;
  for (int i = 0; i < 100; ++i)
    model.take(seen(json::array({job("a", i / 100.0, kGiB, 4 * kGiB)})), kNow);
  const Model::Past past = model.past("ja");
  ASSERT_EQ(past.share.size(), 40u);
  EXPECT_EQ(past.share.back(), 0.99);
  EXPECT_EQ(past.memory.back(), 0.25) << "of its quota";
  model.take(seen(json::array({job("b", -1, 141 * kGiB / 2)})), kNow);
  EXPECT_EQ(model.past("ja").share.size(), 0u);
  EXPECT_EQ(model.past("jb").share.back(), std::nullopt);
  EXPECT_EQ(model.past("jb").memory.back(), 0.5) << "of the GPU";
}

TEST(TopModel, WithoutAListingTheLastOneStaysAndItsAgeIsSaid) {
  Model model = lab();
  model.miss("no monitor answers at /x");
  EXPECT_EQ(names(model).size(), 3u);
  EXPECT_EQ(model.notice(kNow + seconds(90)), "shown is what was 1m ago: no monitor answers at /x");
  model.take(seen(json::array()), kNow);
  EXPECT_EQ(model.notice(kNow), "");
}

TEST(TopModel, RowsAreSelectedAsPsSelectsJobsAlsoThoseThatNoJobHas) {
  const auto names = [](const Selection& selection) {
    Look look;
    look.ps = {{"jobs", {job("a", 0.5, kGiB), job("b", 0.1, kGiB)}},
               {"outside",
                {{{"pid", 77},
                  {"name", "stray"},
                  {"user", "bob"},
                  {"gpu_uuid", "GPU-1"},
                  {"gpu_index", 1}}}}};
    EXPECT_FALSE(keep_selected(look, selection));
    EXPECT_EQ(look.summary.rfind("2 of 2 jobs run", 0), 0u) << "it counts all: " << look.summary;
    Texts out;
    for (const json& each : look.ps["jobs"]) out.push_back(each["name"]);
    for (const json& each : look.ps["outside"]) out.push_back(each["name"]);
    return out;
  };
  EXPECT_EQ(names(chosen({"b"})), (Texts{"b"}));
  EXPECT_EQ(names(chosen({"77"})), (Texts{"stray"}));
  EXPECT_EQ(names(chosen({}, "bob")), (Texts{"stray"}));
  EXPECT_EQ(names(chosen({}, "", "0")), (Texts{"a", "b"}));
  EXPECT_EQ(names(chosen({}, "", "", "unmanaged")), (Texts{"stray"}));
  Look look;
  look.ps = {{"jobs", json::array()}, {"outside", json::array()}};
  const auto refused = keep_selected(look, chosen({"gone"}));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, kNoSuchJobOrGpu);
  EXPECT_TRUE(look.ps["jobs"].empty());
}

TEST(TopFrame, BarsShowTheNewestAndLeaveBlankWhatIsNotKnown) {
  EXPECT_EQ(bars({0.0, 0.5, 1.0, 7.0}, 6, true), "  ▁▅██");
  EXPECT_EQ(bars({0.0, 0.5, std::nullopt, 1.0}, 4, false), "_= #");
  EXPECT_EQ(bars({0.0, 1.0, 1.0}, 2, false), "##");
  EXPECT_EQ(bars({}, 3, true), "   ");
}

TEST(TopFrame, AGpuIsALineForAChat) {
  EXPECT_EQ(gpu_lines(json::array({gpu(0)}), 80, true),
            Texts{"GPU 0  NVIDIA H200   98%    81G of 141G    54 C   612 W"});
  json unknown = gpu(1, "NVIDIA H100");
  for (const char* key : {"utilisation_ratio", "temperature_celsius", "power_watts"}) {
    unknown[key] = nullptr;
  }
  EXPECT_EQ(gpu_lines(json::array({unknown}), 0, true)[0],
            "GPU 1  NVIDIA H100    -%    81G of 141G     - C     - W");
  const auto narrow = gpu_lines(json::array({gpu(0, "An Accelerator With A Long Name")}), 60, true);
  EXPECT_EQ(width_of(narrow[0]), 60u) << narrow[0];
  EXPECT_TRUE(has(narrow[0], "612 W"));
}

TEST(TopFrame, HasAllThatStandsInItInEightyByTwentyFour) {
  Model model = lab();
  const auto lines = draw(model, {80, 24, true}, kNow);
  const Texts all = texts(lines);
  ASSERT_EQ(all.size(), 24u);
  EXPECT_TRUE(has(all[0], "GPU 0  NVIDIA H200")) << all[0];
  EXPECT_TRUE(has(all[1], "1 of 2 jobs runs")) << all[1];
  EXPECT_TRUE(has(all[2], "NAME") && has(all[2], "STATE") && has(all[2], "GPU%")) << all[2];
  EXPECT_TRUE(has(all[3], "serve") && has(all[3], "▆") && has(all[3], "▇")) << all[3];
  EXPECT_TRUE(has(all[4], "train") && has(all[4], "waiting: ")) << all[4];
  EXPECT_TRUE(has(all[5], "~python") && has(all[5], "unmanaged 48213") && has(all[5], "~37"))
      << all[5];
  EXPECT_TRUE(lines[3].selected && !lines[4].selected);
  EXPECT_EQ(all[21], "serve: running; pid 4711");
  EXPECT_TRUE(has(all[23], "q quit") && has(all[23], "s sort: GPU%")) << all[23];
  model.press(kDown, 10);
  EXPECT_EQ(texts(draw(model, {80, 24, true}, kNow))[21],
            "train: waiting: 8.1 GiB of serve; pid 4711")
      << "in full";
}

TEST(TopFrame, KeepsEachSize) {
  Model model = lab();
  for (const std::size_t columns : {1, 10, 40, 60, 75, 76, 80, 99, 100, 140, 300}) {
    for (const std::size_t lines : {1, 2, 3, 5, 8, 15, 24, 100}) {
      for (const int key : {'?', ' ', 'p', 'n'}) {
        model.press(key, 10);
        const auto drawn = texts(draw(model, {columns, lines, true}, kNow));
        ASSERT_EQ(drawn.size(), lines);
        for (const auto& line : drawn) EXPECT_LE(width_of(line), columns) << line;
      }
    }
  }
}

TEST(TopFrame, AnAsciiLocaleGetsAsciiAndNoNameMovesTheCursor) {
  json all = json::array({job("bad\x1b[2Jname\r", 1.0, kGiB), job("größe", 0.5, kGiB)});
  Model model;
  model.take(seen(all, json::array(), json::array({gpu(0, "G\xc3\xbc\x1b[H")})), kNow);
  for (const std::string& text :
       {whole(draw(model, {80, 24, false}, kNow)), draw_once(model, 80, false)}) {
    for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7f)) << text;
    EXPECT_TRUE(has(text, "bad?[2Jname?") || has(text, "bad?[2Jnam")) << text;
  }
  EXPECT_TRUE(has(whole(draw(model, {80, 24, true}, kNow)), "größe"));
}

TEST(TopFrame, WhatIsSelectedIsOnASmallScreen) {
  json all = json::array();
  for (int i = 0; i < 30; ++i) all.push_back(job("n" + std::to_string(100 + i), 0.5, kGiB));
  Model model;
  model.take(seen(all), kNow);
  const Size small{60, 15, true};
  EXPECT_TRUE(has(whole(draw(model, small, kNow)), "n100"));
  model.press(kLast, page_of(model, small));
  const auto lines = draw(model, small, kNow);
  EXPECT_TRUE(has(whole(lines), "n129"));
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const Line& l) { return l.selected; }), 1);
}

TEST(TopFrame, ManyGpusLeaveRoomForJobs) {
  json gpus = json::array();
  for (unsigned i = 0; i < 16; ++i) gpus.push_back(gpu(i));
  Model model;
  model.take(seen(json::array({job("a", 0.5, kGiB)}), json::array(), gpus), kNow);
  const std::string text = whole(draw(model, {80, 24, true}, kNow));
  EXPECT_TRUE(has(text, "and 8 more GPUs")) << text;
  EXPECT_TRUE(has(text, "\na  ")) << text;
  EXPECT_TRUE(has(draw_once(model, 80, true), "GPU 15")) << "all of it";
}

TEST(TopFrame, EightJobsOnSixteenGpusAreOnOneScreen) {
  json gpus = json::array(), jobs = json::array();
  for (unsigned i = 0; i < 16; ++i) gpus.push_back(gpu(i));
  for (int i = 0; i < 8; ++i) jobs.push_back(job("training-" + std::to_string(i), 0.1, kGiB));
  Model model;
  model.take(seen(jobs, json::array(), gpus), kNow);
  const std::string text = whole(draw(model, {80, 24, true}, kNow));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(has(text, "training-" + std::to_string(i))) << text;
  EXPECT_TRUE(has(text, "and 8 more GPUs: `switchyard status` lists them")) << text;
}

TEST(TopFrame, AQuestionAndANoticeStandBelow) {
  Model model = lab();
  model.miss("no answer");
  model.press('k', 10);
  const std::string text = whole(draw(model, {80, 24, true}, kNow + seconds(5)));
  EXPECT_TRUE(has(text, "end serve by SIGTERM? y/n")) << text;
  EXPECT_TRUE(has(text, "shown is what was 5s ago: no answer")) << text;
  model.press('n', 10);
  model.press(' ', 10);
  EXPECT_TRUE(has(whole(draw(model, {80, 4, true}, kNow)), "no answer")) << "on a tiny screen, too";
}

// A job with these processes.
json job_of(std::initializer_list<pid_t> pids) {
  json out = json::object();
  out["processes"] = json::array();
  for (const pid_t pid : pids) out["processes"].push_back({{"pid", pid}});
  return out;
}

// Asks a monitor that lists the job like this first, and like that when it is asked again.
std::string end_of(const json& first, const json& again) {
  bool asked = false;
  const auto answer = [&](const json& request) -> json {
    if (request["op"] == "status") return {{"ok", true}, {"monitor", {{"pid", ::getpid()}}}};
    json job = std::exchange(asked, true) ? again : first;
    job["job"] = "j1";
    return {{"ok", true}, {"jobs", json::array({std::move(job)})}};
  };
  const auto monitor = FakeMonitor::answering(answer);
  ::setenv("SWITCHYARD_SOCKET", monitor.socket().c_str(), 1);
  std::string said = carry_out({Order::What::kEnd, "j1", "train", ""});
  ::unsetenv("SWITCHYARD_SOCKET");
  return said;
}

TEST(TopOrders, TheProcessesOfAJobGetSigterm) {
  Child one = Child::start({"sleep", "600"});
  Child other = Child::start({"sleep", "600"});
  const json both = job_of({one.pid(), other.pid()});
  EXPECT_EQ(end_of(both, both), "train: SIGTERM sent to 2 processes");
  EXPECT_EQ(one.finish(seconds(60)).status, 128 + SIGTERM);
  EXPECT_EQ(other.finish(seconds(60)).status, 128 + SIGTERM);
}

TEST(TopOrders, AProcessThatIsNotTheJobsAnyMoreGetsNothing) {
  Child child = Child::start({"sleep", "600"});
  const json none = job_of({}), one = job_of({child.pid()});
  EXPECT_EQ(end_of(one, none), "train: it has ended already");
  EXPECT_EQ(end_of(none, one), "train: it has ended already") << "it was not opened";
  EXPECT_EQ(::waitpid(child.pid(), nullptr, WNOHANG), 0) << "it lives";
}

// A control daemon's program that answers as one does, and notes what it is asked, and where.
std::string fake_mps(const std::string& folder) {
  const std::string program = folder + "/nvidia-cuda-mps-control", asked = folder + "/asked";
  std::ofstream(program) << "#!/bin/sh\nread -r line\n"
                         << "echo \"$CUDA_MPS_PIPE_DIRECTORY: $line\" >> " << asked << "\n"
                         << "[ \"$line\" != get_server_list ] || echo 77\n";
  ::chmod(program.c_str(), 0700);
  return asked;
}

TEST(TopOrders, AMemberOfAnIslandLeavesItsServerBeforeTheSignal) {
  char folder[] = "/tmp/switchyard-top-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string asked = fake_mps(folder), path = std::getenv("PATH");
  ::setenv("PATH", (std::string(folder) + ":" + path).c_str(), 1);
  ::setenv("XDG_RUNTIME_DIR", folder, 1);
  Child child = Child::start({"sleep", "600"});
  json job = job_of({child.pid()});
  job["island"] = "x";
  job["gpus"] = json::array();
  job["gpus"].push_back({{"uuid", "GPU-12-34"}});
  EXPECT_EQ(end_of(job, job), "train: SIGTERM sent to 1 process");
  ::setenv("PATH", path.c_str(), 1);
  ::unsetenv("XDG_RUNTIME_DIR");
  std::ostringstream text;
  text << std::ifstream(asked).rdbuf();
  const std::string pipe = std::string(folder) + "/switchyard/islands/x-34/pipe: ";
  EXPECT_EQ(text.str(), pipe + "get_server_list\n" + pipe + "terminate_client 77 " +
                            std::to_string(child.pid()) + "\n");
  EXPECT_EQ(child.finish(seconds(60)).status, 128 + SIGTERM);
  std::filesystem::remove_all(folder);
}

TEST(TopOrders, WhatTheMonitorRefusesIsSaid) {
  json asked;
  const auto answer = [&](const json& request) -> json {
    asked = request;
    return {{"ok", false}, {"code", 5}, {"error", "'train' is bob's job"}};
  };
  const auto monitor = FakeMonitor::answering(answer);
  ::setenv("SWITCHYARD_SOCKET", monitor.socket().c_str(), 1);
  EXPECT_EQ(carry_out({Order::What::kPause, "j1", "train", ""}), "'train' is bob's job");
  EXPECT_EQ(asked, (json{{"op", "pause"}, {"target", "j1"}}));
  carry_out({Order::What::kResume, "j1", "train", ""});
  EXPECT_EQ(asked, (json{{"op", "resume"}, {"target", "j1"}}));
  carry_out({Order::What::kSetPriority, "j1", "train", "high"});
  EXPECT_EQ(asked, (json{{"op", "set"}, {"target", "j1"}, {"priority", "high"}}));
  ::unsetenv("SWITCHYARD_SOCKET");
}

TEST(TopOrders, NobodyWaitsForAnAnswerThatDoesNotCome) {
  std::promise<void> may_answer;
  const auto answer = [&](const json&) -> json {
    may_answer.get_future().wait();
    return {{"ok", false}, {"code", 5}, {"error", "'train' is bob's job"}};
  };
  const auto monitor = FakeMonitor::answering(answer);
  ::setenv("SWITCHYARD_SOCKET", monitor.socket().c_str(), 1);
  UnderWay order;
  EXPECT_FALSE(order.busy());
  EXPECT_EQ(order.finished(), std::nullopt);
  order.begin({Order::What::kPause, "j1", "train", ""});
  EXPECT_TRUE(order.busy());
  EXPECT_EQ(order.finished(), std::nullopt) << "it has no answer yet";
  may_answer.set_value();
  std::optional<std::string> came;
  while (!came) {
    came = order.finished();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(*came, "'train' is bob's job");
  EXPECT_FALSE(order.busy());
  EXPECT_EQ(order.finished(), std::nullopt) << "it comes once";
  ::unsetenv("SWITCHYARD_SOCKET");
}

}  // namespace
}  // namespace switchyard::tools::top
