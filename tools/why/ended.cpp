#include "tools/why/ended.h"

#include <fmt/format.h>

#include "tools/base/output.h"

namespace switchyard::tools {

using nlohmann::json;

std::string ended_text(const std::string& name, const json& events) {
  std::string end, island;
  for (const json& event : events) {
    const std::string kind = text_of(event, "kind");
    // Another job may have had the name before.
    if (kind == "job begins") end = island = "";
    if (kind == "job ends") end = text_of(event, "text");
    if (kind == "island ended" || kind == "island fault") island = text_of(event, "text");
  }
  if (end.empty()) return "";
  // "ends: exit code 3"
  const std::size_t how = end.find(": ");
  return fmt::format("job '{}' has ended{}{}", name, how == end.npos ? "" : end.substr(how),
                     island.empty() ? "" : "; before that " + island);
}

std::string ended_text_of_bill(const json& row) {
  const std::string begin = fmt::format("job '{}' has ended", text_of(row, "name"));
  if (const auto code = real_of(row, "exit_code")) {
    return fmt::format("{}: exit code {:.0f}", begin, *code);
  }
  if (const auto number = real_of(row, "exit_signal")) {
    return fmt::format("{}: signal {:.0f}", begin, *number);
  }
  const bool lost = text_of(row, "exit", "") == "lost";
  return lost ? begin + " while no monitor saw it" : begin;
}

}  // namespace switchyard::tools
