// `simulate`: what would the policies do with these jobs? Plays hours in seconds, on as many GPUs
// as wanted, and prints shares, latencies and what switching costs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/simulate/gang_listing.h"
#include "bench/simulate/simulation.h"

namespace {

using namespace switchyard::simulate;
namespace policy = switchyard::monitor::policy;

struct Options {
  std::string policy = "priority";
  std::string means = "both";
  std::string place = "repeat";
  std::vector<std::string> jobs;
  std::vector<std::string> gangs;
  bool apart = false;
  unsigned gpus = 1;
  double minutes = 1;
  double minimum = 0.02;
  std::uint64_t seed = 1;
  bool foresee = false;
  bool json = false;
};

void add_options(CLI::App& app, Options& options) {
  CLI::Option* jobs = app.add_option("--job", options.jobs, kJobForms);
  CLI::Option* gangs =
      app.add_option(
             "--gang", options.gangs,
             std::string("a job of several ranks, or on one GPU beside such: ") + kGangForms)
          ->excludes(jobs);
  app.add_flag("--apart", options.apart, "each GPU decides by itself, as if there were no gangs")
      ->needs(gangs);
  app.add_option("--policy", options.policy, "how jobs share a GPU")
      ->check(CLI::IsMember({"priority", "fair", "exclusive", "deadline"}))
      ->capture_default_str();
  app.add_option("--means", options.means,
                 "what may be used; none: the policy without means; default: the driver's own way")
      ->check(CLI::IsMember({"both", "slice", "gate", "none", "default"}))
      ->capture_default_str();
  app.add_option("--gpus", options.gpus, "GPUs, each on its own without --gang")
      ->check(CLI::Range(1u, 100'000u))
      ->capture_default_str();
  app.add_option("--place", options.place,
                 "repeat: all jobs on each GPU; spread: one after another")
      ->excludes(gangs)
      ->check(CLI::IsMember({"repeat", "spread"}))
      ->capture_default_str();
  app.add_option("--minutes", options.minutes, "simulated time")
      ->check(CLI::Range(0.001, 100'000.0))
      ->capture_default_str();
  app.add_option("--minimum", options.minimum, "of the GPU's time, left to lower classes")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  app.add_flag("--foresee", options.foresee,
               "serve a high job that waits for its CPU by foreseen waits")
      ->excludes(gangs);
  app.add_option("--seed", options.seed, "of all that is random")->capture_default_str();
  app.add_flag("--json", options.json, "for programs");
}

Settings settings_of(const Options& options) {
  static const std::map<std::string, policy::Kind> kKinds{{"priority", policy::Kind::kPriority},
                                                          {"fair", policy::Kind::kFair},
                                                          {"exclusive", policy::Kind::kExclusive},
                                                          {"deadline", policy::Kind::kDeadline}};
  Settings out;
  out.rules.kind = kKinds.at(options.policy);
  out.rules.slices = options.means == "both" || options.means == "slice";
  out.rules.gates = options.means == "both" || options.means == "gate";
  out.rules.minimum = options.minimum;
  out.rules.foresee = options.foresee;
  out.unmanaged = options.means == "default";
  out.seconds = options.minutes * 60;
  return out;
}

// Each GPU's jobs.
std::vector<std::vector<JobSpec>> place(const Options& options, const std::vector<JobSpec>& jobs) {
  std::vector<std::vector<JobSpec>> out(options.gpus);
  std::size_t next = 0;
  for (const JobSpec& job : jobs) {
    for (unsigned i = 0; i < job.count; ++i) {
      JobSpec one = job;
      if (job.count > 1) one.name += "-" + std::to_string(i + 1);
      if (options.place == "spread") {
        out[next++ % out.size()].push_back(one);
      } else {
        for (auto& gpu : out) gpu.push_back(one);
      }
    }
  }
  return out;
}

std::vector<Result> play(const Options& options, const std::vector<std::vector<JobSpec>>& gpus) {
  std::vector<Result> results(gpus.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t gpu = next++; gpu < gpus.size(); gpu = next++) {
      Settings settings = settings_of(options);
      settings.seed = options.seed + gpu;
      results[gpu] = simulate(gpus[gpu], settings);
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return results;
}

// A job of one name over all GPUs.
struct Line {
  double share = 0;
  unsigned gpus = 0;
  unsigned missed = 0;
  std::size_t requests = 0;
  double p50 = 0, p99 = 0, p99_worst = 0;
};

std::map<std::string, Line> sum_up(const std::vector<Result>& results) {
  std::map<std::string, Line> lines;
  for (const Result& result : results) {
    for (const JobResult& job : result.jobs) {
      Line& line = lines[job.name];
      ++line.gpus;
      line.share += job.share;
      line.missed += static_cast<unsigned>(job.missed);
      line.requests += job.latencies_ms.size();
      const double p99 = percentile(job.latencies_ms, 0.99);
      line.p50 += percentile(job.latencies_ms, 0.5);
      line.p99 += p99;
      line.p99_worst = std::max(line.p99_worst, p99);
    }
  }
  for (auto& [name, line] : lines) {
    line.share /= line.gpus;
    line.p50 /= line.gpus;
    line.p99 /= line.gpus;
  }
  return lines;
}

double mean(const std::vector<Result>& results, double Result::*of) {
  double sum = 0;
  for (const Result& result : results) sum += result.*of;
  return sum / static_cast<double>(results.size());
}

void print_json(const Options& options, const std::vector<Result>& results) {
  nlohmann::json out;
  out["schema_version"] = 1;
  out["policy"] = options.policy;
  out["means"] = options.means;
  out["gpus"] = options.gpus;
  out["seconds"] = options.minutes * 60;
  out["busy_ratio"] = mean(results, &Result::busy);
  out["switching_ratio"] = mean(results, &Result::switching);
  for (const auto& [name, line] : sum_up(results)) {
    out["jobs"].push_back({{"name", name},
                           {"gpus", line.gpus},
                           {"share_ratio", line.share},
                           {"requests", line.requests},
                           {"latency_p50_seconds", line.p50 * 1e-3},
                           {"latency_p99_seconds", line.p99 * 1e-3},
                           {"latency_p99_worst_gpu_seconds", line.p99_worst * 1e-3},
                           {"deadlines_missed", line.missed}});
  }
  std::printf("%s\n", out.dump(2).c_str());
}

void print_table(const std::vector<Result>& results) {
  std::printf("%-24s %6s %8s %10s %10s %10s %7s\n", "job", "gpus", "share", "steps", "p50 ms",
              "p99 ms", "missed");
  for (const auto& [name, line] : sum_up(results)) {
    std::printf("%-24s %6u %7.2f%% %10zu %10.3f %10.3f %7u\n", name.c_str(), line.gpus,
                100 * line.share, line.requests, line.p50, line.p99, line.missed);
  }
  std::printf("GPU: %.2f %% at work, %.2f %% lost to switching\n",
              100 * mean(results, &Result::busy), 100 * mean(results, &Result::switching));
}

// Each is understood, or it is said why one is not.
template <typename Spec, typename Parse>
bool understand(const std::vector<std::string>& texts, std::vector<Spec>& out, Parse parse) {
  for (const std::string& text : texts) {
    std::string why;
    auto spec = parse(text, why);
    if (!spec) {
      std::fprintf(stderr, "simulate: %s\n", why.c_str());
      return false;
    }
    out.push_back(*std::move(spec));
  }
  return true;
}

int play_gangs(const Options& options) {
  std::vector<GangSpec> gangs;
  const auto parse = [&](const std::string& text, std::string& why) {
    return parse_gang(text, options.gpus, why);
  };
  if (!understand(options.gangs, gangs, parse)) return 2;
  const Settings common = settings_of(options);
  GangSettings settings;
  settings.rules = common.rules;
  settings.gpus = options.gpus;
  settings.seconds = common.seconds;
  settings.seed = options.seed;
  settings.together = !options.apart;
  print_gangs(gangs, settings, simulate_gangs(gangs, settings), options.json);
  return 0;
}

int play_jobs(const Options& options) {
  std::vector<JobSpec> jobs;
  if (!understand(options.jobs, jobs, parse_job)) return 2;
  const auto results = play(options, place(options, jobs));
  options.json ? print_json(options, results) : print_table(results);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Plays jobs on simulated GPUs under the monitor's own policies.", "simulate");
  app.footer(
      "Example:\n  simulate --minutes 60 --job high:requests:rate=50,gpu_ms=1.2 --job "
      "low:training:count=3\n  simulate --policy exclusive --gpus 2 --gang low:gpus=0-1 --gang "
      "low:gpus=0 --gang low:gpus=1");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!options.gangs.empty()) return play_gangs(options);
  if (!options.jobs.empty()) return play_jobs(options);
  std::fprintf(stderr, "simulate: --job or --gang is required; --help has their forms\n");
  return 2;
}
