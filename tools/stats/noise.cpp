#include "tools/stats/noise.h"

#include <fmt/format.h>

#include "switchyard/norms.h"
#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

double real(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// "; not measured: its collectives are in a CUDA graph, where nothing is added"
std::string unmeasured(const json& noise) {
  std::string text;
  const auto found = noise.find("unmeasured");
  if (found == noise.end() || !found->is_array()) return text;
  for (const json& each : *found) {
    for (const UnmeasuredWords& words : kUnmeasured) {
      if (each != words.key) continue;
      text += fmt::format("{}{}", text.empty() ? "; not measured: " : "; ", words.text);
    }
  }
  return text;
}

std::string measured(const json& noise) {
  const double gradient = real(noise, "gradient_square");
  return fmt::format(
      "critical batch about {:.3g} x yours (spread {:.2g}, {} steps); variance of a rank's "
      "gradient {:.3g} x |G|^2",
      real(noise, "critical_batch_ratio"), real(noise, "critical_batch_spread"),
      number_of(noise, "steps"), real(noise, "gradient_variance") / gradient);
}

std::string why_not(const json& noise, const std::string& state) {
  if (state == "measuring") return "not enough steps were seen yet";
  if (state == "unclear") {
    return fmt::format("after {} steps the gradient is not told apart from its noise (yet)",
                       number_of(noise, "steps"));
  }
  if (state == "one_rank") return "it has one rank, and the noise is what ranks differ by";
  if (state == "no_gradient") {
    return fmt::format("no sum or average of {} floating-point numbers or more was launched",
                       kFewestElements);
  }
  if (state == "ranks_missing") {
    return fmt::format("{} of {} ranks tell their norms", number_of(noise, "telling_ranks"),
                       number_of(noise, "ranks"));
  }
  if (state == "several_communicators") {
    return "several communicators sum large tensors, and which of them holds gradients is unknown";
  }
  return "nothing is known";
}

}  // namespace

std::string noise_text(const json& job) {
  const auto found = job.find("gradient_noise");
  if (found == job.end() || !found->is_object()) return {};
  const std::string state = text_of(*found, "state");
  const std::string what = state == "measured" ? measured(*found) : why_not(*found, state);
  return "gradient noise: " + what + unmeasured(*found);
}

}  // namespace switchyard::tools
