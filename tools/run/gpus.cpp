#include "tools/run/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

constexpr std::string_view kUuidPrefix = "GPU-";
constexpr char kForms[] = "indices or UUIDs of GPUs, with commas between them, as in 0,2";

bool is_index(const std::string& word) {
  return !word.empty() && word.size() < 4 &&
         word.find_first_not_of("0123456789") == std::string::npos;
}

bool is_uuid(const std::string& word) {
  return word.size() > kUuidPrefix.size() && word.rfind(kUuidPrefix, 0) == 0;
}

bool names(const std::string& word, const NvmlGpu& gpu) {
  return is_index(word) ? std::stoul(word) == gpu.index : gpu.uuid.rfind(word, 0) == 0;
}

// "GPU 0" or "GPUs 0, 1"
std::string indices_of(const std::vector<NvmlGpu>& gpus) {
  std::string text;
  for (const NvmlGpu& gpu : gpus) text += fmt::format("{}{}", text.empty() ? "" : ", ", gpu.index);
  return (gpus.size() == 1 ? "GPU " : "GPUs ") + text;
}

Result<std::vector<std::string>> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
    if (!is_index(words.back()) && !is_uuid(words.back())) {
      return bad_value("--gpus", text, kForms);
    }
  }
  return words;
}

Result<NvmlGpu> gpu_named(const std::string& word, const std::vector<NvmlGpu>& gpus) {
  const auto is_it = [&](const NvmlGpu& gpu) { return names(word, gpu); };
  const auto found = std::find_if(gpus.begin(), gpus.end(), is_it);
  if (found == gpus.end()) {
    return Error{kRunRefused, fmt::format("--gpus: there is no GPU {}; this machine has {}", word,
                                          indices_of(gpus))};
  }
  if (std::any_of(found + 1, gpus.end(), is_it)) {
    return Error{kUsage,
                 fmt::format("--gpus: several GPUs begin with {}: give more of the UUID", word)};
  }
  return *found;
}

}  // namespace

Result<std::string> choose_gpus(const std::string& text, const NvmlReport& report,
                                bool best_effort) {
  const auto words = words_of(text);
  if (!words) return words.error();
  if (report.gpus.empty()) {
    if (best_effort) return text;
    return Error{kRunRefused,
                 fmt::format("--gpus {}: {}; not started, because the GPUs cannot be checked: see "
                             "`switchyard doctor`, or add --best-effort",
                             text, report.problem)};
  }
  std::vector<std::string> chosen;
  for (const std::string& word : *words) {
    const auto gpu = gpu_named(word, report.gpus);
    if (!gpu) return gpu.error();
    if (std::count(chosen.begin(), chosen.end(), gpu->uuid) != 0) {
      return Error{kUsage, fmt::format("--gpus {}: GPU {} is named twice", text, gpu->index)};
    }
    chosen.push_back(gpu->uuid);
  }
  std::string visible;
  for (const std::string& uuid : chosen) visible += (visible.empty() ? "" : ",") + uuid;
  return visible;
}

std::optional<Error> show_gpus(const std::string& text, bool best_effort) {
  const char* off = std::getenv("SWITCHYARD_DISABLE");
  const std::optional<std::string> before = off != nullptr ? std::optional(off) : std::nullopt;
  const NvmlReport report = ask_nvml();
  // ask_nvml() switches the library off in this process, which is about to be the job's.
  ::unsetenv("SWITCHYARD_DISABLE");
  if (before) ::setenv("SWITCHYARD_DISABLE", before->c_str(), 1);
  const auto visible = choose_gpus(text, report, best_effort);
  if (!visible) return visible.error();
  if (report.gpus.empty()) {
    complain(fmt::format("--gpus {}: {}; CUDA_VISIBLE_DEVICES is set to {} unchecked", text,
                         report.problem, *visible));
  }
  ::setenv("CUDA_VISIBLE_DEVICES", visible->c_str(), 1);
  return std::nullopt;
}

}  // namespace switchyard::tools
