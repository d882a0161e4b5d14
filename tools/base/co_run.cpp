#include "tools/base/co_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// Of the GPUs' time: more fills one GPU by slices, too.
constexpr double kLeavesRoom = 1.3;
constexpr double kWaitsForItsCpu = 0.5;
// What keeps less of a GPU busy gains nothing.
constexpr double kNotable = 0.02;

// The one GPU where it works; null: there is none, or there are several.
const json* only_gpu(const json& job) {
  const json* only = nullptr;
  for (const json& gpu : list_of(job, "gpus")) {
    if (!truth_of(gpu, "active")) continue;
    if (only != nullptr) return nullptr;
    only = &gpu;
  }
  return only;
}

// `waits`: of `seconds`, as parts of them or in seconds (`unit`).
std::optional<Tenant> tenant_of(const json& job, double seconds, double gpu_seconds,
                                const json& waits, double unit) {
  const json* gpu = only_gpu(job);
  if (gpu == nullptr || seconds <= 0 || truth_of(job, "island_server")) return std::nullopt;
  Tenant out{text_of(job, "job"),        text_of(job, "name"),
             text_of(job, "user"),       text_of(job, "priority"),
             text_of(job, "island", ""), fmt::format("GPU {}", number_of(*gpu, "index"))};
  double others = 0;
  for (const auto& [reason, each] : waits.items()) {
    const double part = each.is_number() ? each.get<double>() / unit : 0;
    (reason == "slices" || reason == "turn" ? out.busy : others) += part;
  }
  out.busy += gpu_seconds / seconds;
  out.cpu = std::max(0.0, 1 - out.busy - others);
  return out;
}

bool gains(const Company& company) {
  return company.jobs.size() > 1 &&
         (company.busy < kLeavesRoom ||
          std::all_of(company.jobs.begin(), company.jobs.end(),
                      [](const Tenant& each) { return each.cpu >= kWaitsForItsCpu; }));
}

const json& object_of(const json& job, const char* key) {
  static const json none = json::object();
  const auto found = job.find(key);
  return found != job.end() && found->is_object() ? *found : none;
}

}  // namespace

std::vector<Company> companies_of(const std::vector<Tenant>& tenants) {
  std::map<std::tuple<std::string, std::string, std::string>, Company> all;
  for (const Tenant& each : tenants) {
    if (!each.island.empty() || each.priority == "high" || each.busy < kNotable) continue;
    Company& company = all[{each.gpu, each.user, each.priority}];
    company.jobs.push_back(each);
    company.busy += each.busy;
  }
  std::vector<Company> out;
  for (auto& [key, company] : all) {
    if (gains(company)) out.push_back(std::move(company));
  }
  return out;
}

std::vector<Tenant> tenants_of(const json& jobs) {
  std::vector<Tenant> out;
  for (const json& job : jobs) {
    const double seconds = real_of(job, "since_seconds").value_or(0);
    const double had = real_of(job, "gpu_seconds").value_or(0);
    const auto tenant = tenant_of(job, seconds, had, object_of(job, "waits_seconds"), seconds);
    if (tenant) out.push_back(*tenant);
  }
  return out;
}

std::vector<Tenant> tenants_of(const json& jobs, const json& rates) {
  std::vector<Tenant> out;
  for (const json& job : jobs) {
    const auto rate = std::find_if(rates.begin(), rates.end(), [&](const json& each) {
      return text_of(each, "job") == text_of(job, "job");
    });
    if (rate == rates.end()) continue;
    const auto tenant =
        tenant_of(job, real_of(*rate, "interval_seconds").value_or(0),
                  real_of(*rate, "gpu_seconds").value_or(0), object_of(*rate, "waits_ratio"), 1);
    if (tenant) out.push_back(*tenant);
  }
  return out;
}

std::string company_text(const Company& company) {
  std::string names;
  for (std::size_t i = 0; i < company.jobs.size(); ++i) {
    const bool last = i + 1 == company.jobs.size();
    names += (i == 0 ? "" : last ? " and " : ", ") + company.jobs[i].name;
  }
  return fmt::format(
      "together {} keep {:.2f} of {} busy; at the same time, by `run --co-run`, they may do more",
      names, company.busy, company.jobs.front().gpu);
}

}  // namespace switchyard::tools
