#include <algorithm>
#include <map>

#include "bench/simulate/gangs.h"
#include "bench/simulate/text.h"

namespace switchyard::simulate {
namespace {

std::optional<std::size_t> index_of(std::string_view text) {
  const auto value = number(text);
  if (!value || text.ends_with('%') || *value > 100'000) return std::nullopt;
  const auto index = static_cast<std::size_t>(*value);
  return static_cast<double>(index) == *value ? std::optional(index) : std::nullopt;
}

// "0+2", "0-7": each GPU once, and in the machine.
bool set_gpus(std::vector<std::size_t>& out, std::string_view text, std::size_t gpus) {
  while (!text.empty()) {
    std::string_view part = cut(text, '+');
    const auto first = index_of(cut(part, '-'));
    const auto last = part.empty() ? first : index_of(part);
    if (!first || !last || *last < *first || *last >= gpus) return false;
    for (std::size_t gpu = *first; gpu <= *last; ++gpu) out.push_back(gpu);
  }
  std::sort(out.begin(), out.end());
  return !out.empty() && std::adjacent_find(out.begin(), out.end()) == out.end();
}

bool set_gang_key(GangSpec& gang, std::string_view key, std::string_view text, std::size_t gpus) {
  if (key == "gpus") return gang.gpus.empty() && set_gpus(gang.gpus, text, gpus);
  if (key == "name") {
    gang.name = text;
    return !text.empty();
  }
  const std::map<std::string_view, double*> plain{{"gpu_ms", &gang.gpu_ms},
                                                  {"cpu_ms", &gang.cpu_ms},
                                                  {"limit", &gang.limit},
                                                  {"start_s", &gang.start_s}};
  const auto found = plain.find(key);
  const auto value = number(text);
  if (found == plain.end() || !value) return false;
  *found->second = *value;
  return true;
}

}  // namespace

std::optional<GangSpec> parse_gang(std::string_view text, std::size_t gpus, std::string& why) {
  const std::string whole(text);
  const auto refuse = [&](std::string_view part) {
    why = "gang '" + whole + "': '" + std::string(part) +
          "' is not understood, or there are only " + std::to_string(gpus) + " GPUs; write " +
          kGangForms;
    return std::nullopt;
  };
  GangSpec gang;
  gang.name = whole.substr(0, whole.find(','));
  const std::string_view priority = cut(text, ':');
  const auto parsed = parse_priority(priority);
  if (!parsed) return refuse(priority);
  gang.priority = *parsed;
  while (!text.empty()) {
    std::string_view value = cut(text, ',');
    const std::string_view setting = value;
    const std::string_view key = cut(value, '=');
    if (!set_gang_key(gang, key, value, gpus)) return refuse(setting);
  }
  if (gang.gpus.empty()) return refuse("no gpus");
  if (gang.gpu_ms <= 0) return refuse("zero");
  return gang;
}

}  // namespace switchyard::simulate
