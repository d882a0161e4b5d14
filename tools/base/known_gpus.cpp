#include "tools/base/known_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "tools/base/output.h"
#include "tools/base/parts.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

bool has_gpu(const json& gpus, const std::string& named) {
  return std::any_of(gpus.begin(), gpus.end(), [&](const json& gpu) {
    return std::to_string(number_of(gpu, "index", ~0ull)) == named ||
           text_of(gpu, "uuid", "").rfind(named, 0) == 0;
  });
}

// Else the selection is refused for it (selector.h).
bool names_a_gpu(const std::string& text) {
  const auto digit = [](unsigned char each) { return std::isdigit(each) != 0; };
  return text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0 ||
         std::all_of(text.begin(), text.end(), digit);
}

}  // namespace

std::optional<Error> unknown_gpu(const Selection& selection, const json& gpus, const json& jobs) {
  if (gpus.empty()) return std::nullopt;
  for (const std::string& named : parts_of(selection.gpus)) {
    const bool known =
        has_gpu(gpus, named) || std::any_of(jobs.begin(), jobs.end(), [&](const json& job) {
          return has_gpu(list_of(job, "gpus"), named);
        });
    if (known || !names_a_gpu(named)) continue;
    return Error{
        kNoSuchJobOrGpu,
        fmt::format("--gpu: there is no GPU {}; `switchyard status` lists the GPUs", named)};
  }
  return std::nullopt;
}

}  // namespace switchyard::tools
