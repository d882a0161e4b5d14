#include "tools/why/together.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/base/co_run.h"
#include "tools/base/output.h"
#include "tools/why/seen.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// A thread that waits for less is not behind.
constexpr double kLacksCores = 0.2;
// An island that does so much of what slices would is as good.
constexpr double kAsGood = 0.97;

std::string suggestion(const json& jobs, const json& rates, const json& job) {
  for (const Company& company : companies_of(tenants_of(jobs, rates))) {
    const bool has = std::any_of(company.jobs.begin(), company.jobs.end(), [&](const Tenant& each) {
      return each.job == text_of(job, "job");
    });
    if (has) return " " + capital(company_text(company)) + ".";
  }
  return "";
}

bool same_island(const json& a, const json& b) {
  return text_of(a, "island", "") == text_of(b, "island", "") &&
         text_of(a, "user") == text_of(b, "user");
}

std::string want_of_cores(const json& jobs, const json& job, const CoreLooks& cores) {
  std::vector<std::string> names;
  for (const json& other : jobs) {
    if (!same_island(job, other)) continue;
    double most = 0;
    for (const json& process : list_of(other, "processes")) {
      const auto pid = static_cast<pid_t>(number_of(process, "pid"));
      most = std::max(most, waited_for_cores(cores.before, cores.after, pid, cores.seconds));
    }
    if (most < kLacksCores) continue;
    names.push_back(fmt::format("{} ({:.0f}%)", text_of(other, "name"), 100 * most));
  }
  if (names.empty()) return "";
  return fmt::format(" For want of CPU cores these members of its island fall behind: {}.",
                     fmt::join(names, ", "));
}

std::string gain_text(const json& job) {
  const auto island = real_of(job, "island_gain_ratio");
  const auto slices = real_of(job, "island_slices_ratio");
  if (!island || !slices || *island >= kAsGood * *slices) return "";
  return fmt::format(
      " Its island does {:.2f} times what one member does alone, and slices would give {:.2f}: "
      "leave --co-run out.",
      *island, *slices);
}

}  // namespace

std::string together_text(const json& jobs, const json& rates, const json& job,
                          const CoreLooks& cores) {
  if (truth_of(job, "island_server")) return "";
  if (text_of(job, "island", "").empty()) return suggestion(jobs, rates, job);
  return want_of_cores(jobs, job, cores) + gain_text(job);
}

}  // namespace switchyard::tools
