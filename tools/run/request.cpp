#include "tools/run/request.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "tools/base/knobs.h"

namespace switchyard::tools {

Result<Card> make_card(const Card& options) {
  const char* outer = std::getenv("SWITCHYARD_JOB");
  const bool nested = outer != nullptr && outer[0] != '\0';
  Card card;
  for (const Knob& knob : knobs()) {
    if (knob.option == nullptr) continue;
    std::string text = knob.fallback;
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

nlohmann::json create_request(const Card& card) {
  nlohmann::json request = {
      {"op", "create"}, {"pid", ::getpid()}, {"card", nlohmann::json::object()}};
  for (const auto& [field, text] : card) {
    if (!text.empty()) request["card"][field] = text;
  }
  // The quota is reserved on the GPUs that the job will see.
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    request["cuda_visible_devices"] = visible;
  }
  return request;
}

}  // namespace switchyard::tools
