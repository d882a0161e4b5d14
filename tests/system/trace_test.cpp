// `switchyard trace` with a real monitor and real jobs: its slices are what happened to them.
#include <fstream>
#include <sstream>

#include "switchyard/status.h"
#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

struct Slice {
  std::int64_t from = 0, to = 0;  // microseconds since the beginning
  std::string text;
};

class TraceOfJobs : public Scene {
 protected:
  std::string read(const std::string& file) const {
    std::ifstream in(in_folder(file));
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  // What the page draws of the last minute.
  json drawn() {
    const auto end = cli({"trace", "--html", "-o", in_folder("t.html")});
    EXPECT_EQ(end.status, 0) << end.err;
    const std::string page = read("t.html");
    const std::string begin = "type=\"application/json\">";
    const auto at = page.find(begin) + begin.size();
    return json::parse(page.substr(at, page.find("</script>", at) - at), nullptr, false);
  }
  // Its slices on the only GPU. They follow each other to the end of the job.
  static std::vector<Slice> slices(const json& data, const std::string& job) {
    std::vector<Slice> out;
    for (const json& lane : data["lanes"]) {
      if (lane["name"] != job) continue;
      std::int64_t at = lane["begin"];
      for (std::size_t i = 0; i < lane["spans"].size(); i += 2) {
        const std::int64_t length = lane["spans"][i];
        const std::size_t text = lane["spans"][i + 1];
        out.push_back({at, at + length, data["texts"][text][1]});
        at += length;
      }
      EXPECT_LE(at, data["span"].get<std::int64_t>());
    }
    return out;
  }
  // The first slice from `from` on with that text; null when there is none.
  static const Slice* find(const std::vector<Slice>& slices, const std::string& text,
                           std::int64_t from = 0) {
    for (const Slice& slice : slices) {
      if (slice.from >= from && slice.text.rfind(text, 0) == 0) return &slice;
    }
    return nullptr;
  }
};

TEST_F(TraceOfJobs, TurnsNameEachOtherAndAPauseStopsThem) {
  auto daemon = monitor({"--persist", "--policy", "exclusive", "--backend", "gate"});
  auto first = loop({"--name", "first"});
  auto second = loop({"--name", "second"});
  json data;
  ASSERT_TRUE(eventually([&] {
    data = drawn();
    return find(slices(data, "first"), "waiting: turn of second") != nullptr &&
           find(slices(data, "second"), "waiting: turn of first") != nullptr &&
           data["arrows"].size() >= 4;
  }));
  for (const json& arrow : data["arrows"]) {
    EXPECT_LE(arrow[1], arrow[3]) << "who runs next begins when the other has ended";
    EXPECT_NE(arrow[2], arrow[4]);
  }
  ASSERT_EQ(cli({"pause", "first"}).status, 0);
  const long ran = kernels(second);
  ASSERT_TRUE(eventually([&] { return kernels(second) > ran; }));
  ASSERT_EQ(cli({"resume", "first"}).status, 0);
  const std::string user = job_named("first")["user"];
  ASSERT_TRUE(eventually([&] {
    data = drawn();
    const auto all = slices(data, "first");
    const Slice* paused = find(all, "paused");
    return paused != nullptr && find(all, "running", paused->to) != nullptr;
  }));
  const auto all = slices(data, "first");
  const Slice* paused = find(all, "paused");
  EXPECT_EQ(paused->text, "paused by " + user);
  EXPECT_EQ(find(all, "paused", paused->to), nullptr) << "it is one slice";
  bool ran_meanwhile = false;
  for (const Slice& slice : slices(data, "second")) {
    const bool runs = slice.text == "running";
    ran_meanwhile = ran_meanwhile || (runs && slice.from < paused->to && slice.to > paused->from);
  }
  EXPECT_TRUE(ran_meanwhile);
  for (const json& users : data["gpus"][0]["users"]) {
    const std::int64_t from = users[0], to = from + users[1].get<std::int64_t>();
    if (from < paused->from || to > paused->to) continue;
    EXPECT_EQ(data["names"][users[2].get<std::size_t>()], "second");
  }
}

TEST_F(TraceOfJobs, ASwapIsThreeSlicesInTheirOrder) {
  auto daemon = monitor({"--persist"});
  auto lender =
      job({"--name", "lender", "--swappable"},
          {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, {{"FAKECUDA_PATTERN", "1"}});
  ASSERT_EQ(line_of(lender), "ready");
  ASSERT_EQ(cli({"swap-out", "lender"}).status, 0);
  ASSERT_TRUE(eventually([&] { return job_named("lender")["state"] == "swapped"; }));
  ASSERT_EQ(cli({"swap-in", "lender"}).status, 0);
  json data;
  ASSERT_TRUE(eventually([&] {
    data = drawn();
    const auto all = slices(data, "lender");
    return !all.empty() && find(all, "swapping in") != nullptr &&
           all.back().text.rfind("swapping", 0) != 0;
  })) << data;
  const auto all = slices(data, "lender");
  const Slice* out = find(all, "swapping out");
  const Slice* away = find(all, "swapped out: swap-out");
  const Slice* in = find(all, "swapping in");
  ASSERT_TRUE(out != nullptr && away != nullptr && in != nullptr) << data["texts"];
  EXPECT_EQ(out->to, away->from);
  EXPECT_EQ(away->to, in->from);
  EXPECT_NE(away->text.find(" by "), std::string::npos) << away->text;
}

TEST_F(TraceOfJobs, AnEndedJobIsDrawnUntilItsEndAndATraceNeedsAMonitor) {
  EXPECT_EQ(cli({"trace", "-o", in_folder("t.pftrace")}).status, kMonitorUnreachable);
  auto daemon = monitor({"--persist"});
  auto train = loop({"--name", "train"});
  ASSERT_TRUE(eventually([&] { return find(slices(drawn(), "train"), "running") != nullptr; }));
  train.finish(kLimit);
  json data;
  ASSERT_TRUE(eventually([&] {
    data = drawn();
    const auto all = slices(data, "train");
    return !all.empty() && all.back().to < data["span"].get<std::int64_t>();
  }));
  const auto end = cli({"trace", "-o", in_folder("t.pftrace"), "--last", "30s"});
  EXPECT_EQ(end.status, 0) << end.err;
  const std::string trace = read("t.pftrace");
  EXPECT_NE(trace.find("train ("), std::string::npos);
  EXPECT_NE(trace.find("processes at work"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::system_tests
