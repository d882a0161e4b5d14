#include "tools/base/known_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tools/base/output.h"
#include "tools/base/parts.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

bool has_gpu(const json& gpus, const std::string& named) {
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](const json& gpu) { return names_gpu(named, gpu); });
}

}  // namespace

std::optional<Error> unknown_gpu(const Selection& selection, const json& gpus, const json& jobs) {
  if (gpus.empty()) return std::nullopt;
  for (const std::string& named : parts_of(selection.gpus)) {
    const bool known =
        has_gpu(gpus, named) || std::any_of(jobs.begin(), jobs.end(), [&](const json& job) {
          return has_gpu(list_of(job, "gpus"), named);
        });
    if (known || !may_name_gpu(named)) continue;  // select() refuses the second
    return Error{
        kNoSuchJobOrGpu,
        fmt::format("--gpu: there is no GPU {}; `switchyard status` lists the GPUs", named)};
  }
  return std::nullopt;
}

}  // namespace switchyard::tools
