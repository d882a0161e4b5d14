#include "tools/ps/unmanaged.h"

#include <fmt/format.h>

#include <set>

#include "tools/base/output.h"
#include "tools/base/table.h"
#include "tools/ps/fields.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// "~25%": an estimate, always.
std::string seen_share(const json& process) {
  const auto share = real_of(process, "share_got_ratio");
  return share ? fmt::format("~{:.0f}%", *share * 100) : "-";
}

std::string seen_gpu(const json& process) {
  const bool numbered = process.contains("gpu_index");
  return numbered ? std::to_string(number_of(process, "gpu_index"))
                  : text_of(process, "gpu_uuid").substr(0, 12);
}

std::string seen_since(const json& process) {
  const auto since = real_of(process, "since_seconds");
  return since ? human_seconds(*since) : "-";
}

}  // namespace

std::string unmanaged_table(const json& outside) {
  using enum Table::Align;
  Table table({{"PID", kRight},
               {"USER"},
               {"NAME"},
               {"CONTAINER"},
               {"GPU"},
               {"SHARE", kRight},
               {"MEMORY", kRight},
               {"SINCE", kRight},
               {"COMMAND"}});
  for (const json& process : outside) {
    table.add({std::to_string(number_of(process, "pid")), text_of(process, "user"),
               text_of(process, "name"), text_of(process, "container").substr(0, kContainerDigits),
               seen_gpu(process), seen_share(process),
               human_bytes(number_of(process, "memory_used_bytes")), seen_since(process),
               text_of(process, "command")});
  }
  return table.render();
}

std::string unmanaged_hints(const json& outside) {
  std::string out;
  std::set<std::string> said;  // a process on several GPUs has one
  for (const json& process : outside) {
    const std::string hint = text_of(process, "hint", "");
    const std::string line = fmt::format("pid {}: {}\n", number_of(process, "pid"), hint);
    if (!hint.empty() && said.insert(line).second) out += line;
  }
  return out;
}

std::string unmanaged_line(const json& outside) {
  std::set<std::uint64_t> pids;
  std::uint64_t bytes = 0;
  for (const json& process : outside) {
    pids.insert(number_of(process, "pid"));
    bytes += number_of(process, "memory_used_bytes");
  }
  if (pids.empty()) return {};
  const bool one = pids.size() == 1;
  return fmt::format("{} unmanaged GPU {} {}: switchyard ps -a", pids.size(),
                     one ? "process holds" : "processes hold", human_bytes(bytes));
}

void print_unmanaged(const json& outside, const UnmanagedView& view) {
  if (outside.empty()) return;
  if (view.rows) {
    const char* heading = view.managed ? "Unmanaged GPU processes:" : "GPU processes:";
    fmt::print("\n{}\n{}", paint(Tone::kWarning, heading), unmanaged_table(outside));
  }
  if (const std::string hints = unmanaged_hints(outside); !hints.empty()) {
    fmt::print("{}", paint(Tone::kWarning, hints));
  }
  if (!view.rows) fmt::print("{}\n", paint(Tone::kWarning, unmanaged_line(outside)));
}

}  // namespace switchyard::tools
