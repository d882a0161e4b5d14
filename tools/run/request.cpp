#include "tools/run/request.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "tools/base/knobs.h"

namespace switchyard::tools {

bool inside_job() {
  const char* outer = std::getenv("SWITCHYARD_JOB");
  return outer != nullptr && outer[0] != '\0';
}

Result<Card> make_card(const Card& options) {
  const bool nested = inside_job();
  Card card;
  for (const Knob& knob : knobs()) {
    if (knob.option == nullptr) continue;
    std::string text;  // empty: the monitor has the default
    std::string origin = knob.option;
    const char* variable = nested ? nullptr : std::getenv(knob.environment);
    if (const auto given = options.find(knob.field); given != options.end()) {
      text = given->second;
    } else if (variable != nullptr && variable[0] != '\0') {
      text = variable;
      origin = knob.environment;
    } else {
      card[knob.field] = text;
      continue;
    }
    if (auto refused = refuse(knob, origin, text)) return *refused;
    card[knob.field] = text;
  }
  return card;
}

std::vector<Promise> promises_of(const Card& options) {
  std::vector<Promise> out;
  for (const Knob& knob : knobs()) {
    if (knob.option == nullptr || std::string_view(knob.field) == "name") continue;
    const char* variable = std::getenv(knob.environment);
    const auto given = options.find(knob.field);
    Promise promise{knob.field, knob.option, knob.fallback};
    if (given != options.end()) {
      promise.text = given->second;
    } else if (variable != nullptr && variable[0] != '\0') {
      promise.origin = knob.environment;
      promise.text = variable;
    }
    if (!knob.same(promise.text, knob.fallback)) out.push_back(promise);
  }
  return out;
}

std::string origins_text(const std::vector<Promise>& promises) {
  std::string out;
  for (std::size_t i = 0; i < promises.size(); ++i) {
    if (i > 0) out += i + 1 == promises.size() ? " and " : ", ";
    out += promises[i].origin;
  }
  return out;
}

std::vector<Promise> beyond_outer_job(const Card& options) {
  std::vector<Promise> out;
  for (const auto& [field, text] : options) {
    const Knob& row = knob(field);
    if (field == "name") continue;
    const char* variable = std::getenv(row.environment);
    const std::string outer = variable != nullptr ? variable : row.fallback;
    if (!row.same(text, outer)) out.push_back({field, row.option, text});
  }
  return out;
}

// More of it is kept nowhere.
constexpr std::size_t kMostCommand = 200;

nlohmann::json create_request(const Card& card, const std::vector<std::string>& command) {
  nlohmann::json request = {
      {"op", "create"}, {"pid", ::getpid()}, {"card", nlohmann::json::object()}};
  for (const auto& [field, text] : card) {
    if (!text.empty()) request["card"][field] = text;
  }
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
  if (!line.empty()) request["command"] = line.substr(0, kMostCommand);
  // The quota is reserved on the GPUs that the job will see.
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    request["cuda_visible_devices"] = visible;
  }
  return request;
}

}  // namespace switchyard::tools
