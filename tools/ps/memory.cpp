#include "tools/ps/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "switchyard/stays.h"
#include "tools/base/table.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// "12 MiB allocations below 2 MiB, 2 MiB IPC-exported": in the order of the reasons, then what only
// a newer monitor knows.
std::string stays_text(const json& gpu) {
  const auto found = gpu.find("memory_stays_bytes");
  if (found == gpu.end() || !found->is_object()) return "-";
  std::string text;
  const auto tell = [&](const std::string& key, const std::string& words) {
    const std::uint64_t bytes = number_of(*found, key.c_str());
    if (bytes == 0) return;
    text += (text.empty() ? "" : ", ") + human_bytes(bytes) + " " + words;
  };
  const auto is_known = [](const std::string& key) {
    return std::any_of(std::begin(kStaysTexts), std::end(kStaysTexts),
                       [&](const StaysText& each) { return key == each.key; });
  };
  for (const StaysText& each : kStaysTexts) tell(each.key, each.text);
  for (const auto& [key, bytes] : found->items()) {
    if (is_known(key)) continue;
    std::string words = key;
    std::replace(words.begin(), words.end(), '_', ' ');
    tell(key, words);
  }
  return text.empty() ? "-" : text;
}

std::vector<Table::Cell> row(const std::string& name, const json& gpu) {
  const auto bytes = [&](const char* key) { return human_bytes(number_of(gpu, key)); };
  const std::uint64_t swappable = number_of(gpu, "memory_swappable_bytes");
  const std::uint64_t away = std::min(swappable, number_of(gpu, "memory_swapped_bytes"));
  return {name,
          text_of(gpu, "uuid").substr(0, 12),
          bytes("memory_used_bytes"),
          human_bytes(swappable),
          human_bytes(swappable - away),
          bytes("memory_overhead_bytes"),
          bytes("swap_moved_out_bytes"),
          bytes("swap_moved_in_bytes"),
          bytes("swap_spared_bytes"),
          std::to_string(number_of(gpu, "swap_times_out")),
          stays_text(gpu)};
}

}  // namespace

void print_memory(const json& jobs) {
  using enum Table::Align;
  Table table({{"NAME"},
               {"GPU"},
               {"USED", kRight},
               {"SWAPPABLE", kRight},
               {"ON GPU", kRight},
               {"OVERHEAD", kRight},
               {"OUT", kRight},
               {"IN", kRight},
               {"SKIPPED", kRight},
               {"TIMES", kRight},
               {"STAYS"}});
  for (const auto& job : jobs) {
    const std::string name = text_of(job, "name", text_of(job, "job"));
    const auto& gpus = list_of(job, "gpus");
    if (gpus.empty()) table.add({name, "-"});
    for (std::size_t i = 0; i < gpus.size(); ++i) table.add(row(i == 0 ? name : "", gpus[i]));
  }
  fmt::print("{}", table.render());
}

}  // namespace switchyard::tools
