// Jobs that come, go, are killed, stopped and changed at random: what the libraries' own logs say
// of the slices that the driver accepted.
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <sstream>
#include <tuple>

#include "harness.h"
#include "switchyard/abi.h"
#include "tests/fakecuda/stop.h"

namespace switchyard::system_tests {
namespace {

using Ns = std::uint64_t;

Ns monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Ns>(now.tv_sec) * 1'000'000'000 + static_cast<Ns>(now.tv_nsec);
}

// The time in which a compute group had a short slice. It begins before the driver was asked for
// it, and ends when the next slice was taken or the process was sent away.
struct Span {
  Ns begin = 0, end = 0;
  pid_t pid = 0;
};

// One accepted call, as shim/slices logs it.
struct Accepted {
  pid_t pid = 0;
  std::uint32_t us = 0;
  std::string group, uuid;
  Ns began = 0, ended = 0;
};

std::optional<Accepted> read_accepted(const std::string& line) {
  static const std::regex form(
      R"(\S+ switchyard\[(\d+)\] debug: slice: (\d+) us on compute group (\w+) of GPU \d+: )"
      R"(accepted, was \d+ us, uuid (\w{32}), (\d+) to (\d+) ns)");
  std::smatch found;
  if (!std::regex_match(line, found, form)) return std::nullopt;
  return Accepted{std::stoi(found[1]),
                  static_cast<std::uint32_t>(std::stoul(found[2])),
                  found[3],
                  found[4],
                  std::stoull(found[5]),
                  std::stoull(found[6])};
}

// By GPU. `sent_away` has the processes that are no more.
std::map<std::string, std::vector<Span>> short_spans(std::istream& log,
                                                     const std::map<pid_t, Ns>& sent_away) {
  std::map<std::string, std::vector<Span>> out;
  std::map<std::tuple<std::string, pid_t, std::string>, Ns> since;
  for (std::string line; std::getline(log, line);) {
    const auto call = read_accepted(line);
    if (!call) continue;
    const auto key = std::tuple(call->uuid, call->pid, call->group);
    const auto begun = since.find(key);
    if (call->us < abi::kShortBelowUs) {
      since.emplace(key, call->began);
    } else if (begun != since.end()) {
      out[call->uuid].push_back({begun->second, call->ended, call->pid});
      since.erase(begun);
    }
  }
  for (const auto& [key, begin] : since) {
    const auto& [uuid, pid, group] = key;
    const auto away = sent_away.find(pid);
    out[uuid].push_back({begin, away != sent_away.end() ? away->second : ~Ns{0}, pid});
  }
  return out;
}

// How often one begins before all that began earlier have ended.
unsigned overlaps(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  unsigned out = 0;
  Ns until = 0;
  for (const Span& span : spans) {
    if (span.begin < until) ++out;
    until = std::max(until, span.end);
  }
  return out;
}

std::string line(pid_t pid, unsigned us, const char* group, Ns began, Ns ended, char gpu = '0') {
  return "17.000001 switchyard[" + std::to_string(pid) + "] debug: slice: " + std::to_string(us) +
         " us on compute group " + group + " of GPU 0: accepted, was 2048 us, uuid " +
         std::string(32, gpu) + ", " + std::to_string(began) + " to " + std::to_string(ended) +
         " ns\n";
}

unsigned overlaps_in(const std::string& text, const std::map<pid_t, Ns>& sent_away = {}) {
  std::istringstream log(text);
  unsigned out = 0;
  for (const auto& [uuid, spans] : short_spans(log, sent_away)) out += overlaps(spans);
  return out;
}

// The check can bite.
TEST(ChurnLog, TwoShortSlicesAtOneInstantAreFound) {
  const std::string first = line(1, 20, "a", 10, 20);
  const std::string raised = line(1, 2048, "a", 30, 40);
  EXPECT_EQ(overlaps_in(first + line(2, 20, "a", 50, 60)), 1u) << "the first never gave it back";
  EXPECT_EQ(overlaps_in(first + raised + line(2, 20, "a", 39, 60)), 1u) << "before it was taken";
  EXPECT_EQ(overlaps_in(first + raised + line(2, 20, "a", 41, 60)), 0u);
  EXPECT_EQ(overlaps_in(first + line(2, 20, "a", 50, 60, '1')), 0u) << "on another GPU";
  EXPECT_EQ(overlaps_in(first + line(2, 2048, "a", 50, 60)), 0u);
  EXPECT_EQ(overlaps_in(first + line(1, 50, "b", 50, 60)), 1u) << "two groups of one process";
  EXPECT_EQ(overlaps_in(first + line(2, 20, "a", 50, 60), {{1, 49}}), 0u);
  EXPECT_EQ(overlaps_in(first + line(2, 20, "a", 50, 60), {{1, 51}}), 1u);
}

class Churn : public Scene {
 protected:
  struct Job {
    std::string name;
    Child child;
    bool stopped = false;
  };

  std::size_t below(std::size_t count) { return random_() % count; }
  std::string priority() {
    // A crowd of low ones beside one or two others is what hands the short slice around.
    const char* all[] = {"high", "normal", "low", "low"};
    return all[below(4)];
  }
  void join() {
    const std::string name = "job" + std::to_string(joined_++);
    jobs_.push_back({name, loop({"--name", name, "--priority", priority()}, {},
                                {{"SWITCHYARD_LOG", "debug:" + in_folder("slices.log")}})});
  }
  std::list<Job>::iterator any() {
    return std::next(jobs_.begin(), static_cast<long>(below(jobs_.size())));
  }
  Job take() {
    const auto chosen = any();
    Job out = std::move(*chosen);
    jobs_.erase(chosen);
    return out;
  }
  void leave() {
    Job job = take();
    if (job.stopped) ::kill(job.child.pid(), SIGCONT);
    sent_away_[job.child.pid()] = monotonic_ns();
    EXPECT_EQ(job.child.finish(kLimit).status, 0);
  }
  void kill() {
    Job job = take();
    sent_away_[job.child.pid()] = monotonic_ns();
    ::kill(job.child.pid(), SIGKILL);
    EXPECT_EQ(job.child.finish(kLimit).status, 128 + SIGKILL);
  }
  // A stopped process keeps what it has, and confirms nothing.
  void stop_or_go_on() {
    Job& job = *any();
    job.stopped = !job.stopped;
    if (job.stopped) {
      // False: it has ended meanwhile.
      fakecuda::stop_process(in_folder("gpu"), job.child.pid());
    } else {
      ::kill(job.child.pid(), SIGCONT);
    }
  }
  void set() {
    const Job& job = *any();
    const char* shares[] = {"0.25", "1", "4"};
    const Words change = below(3) > 0 ? Words{"set", job.name, "--priority", priority()}
                                      : Words{"set", job.name, "--share", shares[below(3)]};
    EXPECT_EQ(cli(change).status, 0);
  }
  void one() {
    if (jobs_.size() < 2) return join();
    const std::size_t lot = below(20);
    if (lot < 5 && jobs_.size() < 6) return join();
    if (lot < 7) return leave();
    if (lot < 9) return kill();
    if (lot < 11) return stop_or_go_on();
    set();
  }

  const std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  std::list<Job> jobs_;
  unsigned joined_ = 0;
  std::map<pid_t, Ns> sent_away_;
};

TEST_F(Churn, NeverTwoShortSlicesOnOneGpu) {
  std::cout << "seed " << seed_ << std::endl;
  auto daemon = monitor({"--minimum", "0%"});
  for (int event = 0; event < 200 && !HasFailure(); ++event) one();
  // At the end one is short for certain.
  while (!jobs_.empty()) kill();
  auto high = loop({"--name", "high", "--priority", "high"});
  jobs_.push_back({"low", loop({"--name", "low", "--priority", "low"}, {},
                               {{"SWITCHYARD_LOG", "debug:" + in_folder("slices.log")}})});
  EXPECT_TRUE(eventually([this] { return gpu_of("low")["slice_in_force_us"] == 20; }));
  std::ifstream log(in_folder("slices.log"));
  const auto gpus = short_spans(log, sent_away_);
  ASSERT_EQ(gpus.size(), 1u);
  for (const auto& [uuid, spans] : gpus) {
    EXPECT_EQ(overlaps(spans), 0u) << "of " << spans.size() << " on " << uuid << ", seed " << seed_;
    std::cout << spans.size() << " times short" << std::endl;
  }
}

}  // namespace
}  // namespace switchyard::system_tests
