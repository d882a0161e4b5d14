#include "bench/simulate/job.h"

#include <algorithm>
#include <map>

#include "bench/simulate/text.h"

namespace switchyard::simulate {
namespace {

bool set_key(JobSpec& job, std::string_view key, std::string_view text) {
  if (key == "name") {
    job.name = text;
    return !text.empty();
  }
  const auto value = number(text);
  if (!value) return false;
  const std::map<std::string_view, double*> plain{
      {"weight", &job.weight},   {"limit", &job.limit},       {"rate", &job.rate},
      {"gpu_ms", &job.gpu_ms},   {"cpu_ms", &job.cpu_ms},     {"kernel_ms", &job.kernel_ms},
      {"on_s", &job.on_s},       {"off_s", &job.off_s},       {"start_s", &job.start_s},
      {"stop_s", &job.stop_s},   {"work_s", &job.work_s},     {"deadline_s", &job.deadline_s},
      {"scatter", &job.scatter}, {"token_ms", &job.token_ms}, {"token_cpu_ms", &job.token_cpu_ms},
      {"rest_ms", &job.rest_ms}};
  if (const auto found = plain.find(key); found != plain.end()) {
    *found->second = *value;
    return true;
  }
  if ((key == "tail" || key == "tokens") && *value <= 1000) {
    (key == "tail" ? job.tail : job.tokens) = static_cast<unsigned>(*value);
    return true;
  }
  unsigned* const whole = key == "processes"  ? &job.processes
                          : key == "count"    ? &job.count
                          : key == "launches" ? &job.launches
                                              : nullptr;
  if (whole == nullptr || *value < 1 || *value > 100'000) return false;
  *whole = static_cast<unsigned>(*value);
  return true;
}

}  // namespace

std::optional<JobSpec> parse_job(std::string_view text, std::string& why) {
  const std::string whole(text);
  const auto refuse = [&](std::string_view part) {
    why = "job '" + whole + "': '" + std::string(part) + "' is not understood; write " + kJobForms;
    return std::nullopt;
  };
  JobSpec job;
  const std::string_view priority = cut(text, ':');
  const auto parsed = parse_priority(priority);
  if (!parsed) return refuse(priority);
  job.priority = *parsed;
  const std::string_view pattern = cut(text, ':');
  const std::map<std::string_view, Pattern> patterns{{"training", Pattern::kTraining},
                                                     {"requests", Pattern::kRequests},
                                                     {"bursty", Pattern::kBursty},
                                                     {"eager", Pattern::kEager}};
  const auto found = patterns.find(pattern);
  if (found == patterns.end()) return refuse(pattern);
  job.pattern = found->second;
  if (job.pattern != Pattern::kTraining) job.gpu_ms = 1.2;
  if (job.pattern == Pattern::kEager) job.cpu_ms = 6;
  job.name = std::string(priority) + "-" + std::string(pattern);
  while (!text.empty()) {
    std::string_view value = cut(text, ',');
    const std::string_view setting = value;
    const std::string_view key = cut(value, '=');
    if (!set_key(job, key, value)) return refuse(setting);
  }
  if (job.weight <= 0 || job.rate <= 0 || job.gpu_ms <= 0) return refuse("zero");
  return job;
}

double percentile(std::vector<float> values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace switchyard::simulate
