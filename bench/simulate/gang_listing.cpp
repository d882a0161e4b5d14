#include "bench/simulate/gang_listing.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace switchyard::simulate {
namespace {

double share_of(const GangResult& job, const GangSettings& settings) {
  return job.gpu_s / settings.seconds;
}

double busy_of(const GangsResult& result, const GangSettings& settings) {
  return result.busy_s / settings.seconds / static_cast<double>(settings.gpus);
}

void print_json(const std::vector<GangSpec>& jobs, const GangSettings& settings,
                const GangsResult& result) {
  nlohmann::json out;
  out["schema_version"] = 1;
  out["gpus"] = settings.gpus;
  out["seconds"] = settings.seconds;
  out["busy_ratio"] = busy_of(result, settings);
  out["idle_though_fits_seconds"] = result.idle_though_fits_s;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const GangResult& job = result.jobs[i];
    out["jobs"].push_back({{"name", jobs[i].name},
                           {"gpus", jobs[i].gpus},
                           {"steps", job.steps},
                           {"share_ratio", share_of(job, settings)},
                           {"longest_wait_seconds", job.longest_wait_s},
                           {"held_for_nothing_seconds", job.held_for_nothing_s}});
  }
  std::printf("%s\n", out.dump(2).c_str());
}

void print_table(const std::vector<GangSpec>& jobs, const GangSettings& settings,
                 const GangsResult& result) {
  std::printf("%-24s %6s %9s %8s %14s %12s\n", "job", "ranks", "steps/s", "share", "longest wait",
              "half held");
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const GangResult& job = result.jobs[i];
    std::printf("%-24s %6zu %9.2f %7.2f%% %12.3f s %10.3f s\n", jobs[i].name.c_str(),
                jobs[i].gpus.size(), static_cast<double>(job.steps) / settings.seconds,
                100 * share_of(job, settings), job.longest_wait_s, job.held_for_nothing_s);
  }
  std::printf("GPUs: %.2f %% at work; idle though a job would fit: %.3f s\n",
              100 * busy_of(result, settings), result.idle_though_fits_s);
}

}  // namespace

void print_gangs(const std::vector<GangSpec>& jobs, const GangSettings& settings,
                 const GangsResult& result, bool json) {
  json ? print_json(jobs, settings, result) : print_table(jobs, settings, result);
}

}  // namespace switchyard::simulate
