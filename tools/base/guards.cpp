#include "tools/base/guards.h"

#include <fmt/format.h>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

std::string measure_text(const std::string& measure) {
  if (measure == "slices") return "shorter slices";
  if (measure == "copies") return "short slices for its copies";
  if (measure == "ceiling") return "a ceiling";
  return measure == "hold" ? "a hold" : measure;
}

}  // namespace

std::string answer_text(const json& answer) {
  std::string text;
  for (const json& measure : list_of(answer, "measures")) {
    if (!measure.is_string()) continue;
    text += (text.empty() ? "" : ", ") + measure_text(measure.get<std::string>());
  }
  return fmt::format("{} gets {}", text_of(answer, "name"),
                     text.empty() ? "what it had before" : text);
}

void print_guards(const json& jobs) {
  for (const json& job : jobs) {
    const auto guard = job.find("guard");
    if (guard == job.end() || !guard->is_object()) continue;
    const auto missing = guard->find("missing_ratio");
    for (const json& answer : list_of(*guard, "answers")) {
      const double part =
          missing != guard->end() && missing->is_number() ? missing->get<double>() : 0;
      fmt::print("{}\n", paint(Tone::kWarning,
                               fmt::format("{}: its guard ({}, {:.1f}% of its rate is missing): {}",
                                           text_of(job, "name"), text_of(*guard, "state"),
                                           100 * part, answer_text(answer))));
    }
  }
}

}  // namespace switchyard::tools
