#include "tools/events/filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tools/base/known_gpus.h"
#include "tools/base/output.h"

namespace switchyard::tools {

using nlohmann::json;

void Filter::look(MonitorClient& monitor) {
  looked_ = true;
  auto listing = monitor.ask({{"op", "ps"}});
  if (listing) jobs_ = std::move((*listing)["jobs"]);
  for (std::size_t i = 0; i < jobs_.size(); ++i) places_[text_of(jobs_[i], "job")] = i;
  const auto status = monitor.ask({{"op", "status"}});
  if (!status) return;
  for (const json& gpu : list_of(*status, "gpus")) {
    indexes_[text_of(gpu, "uuid")] = number_of(gpu, "index");
  }
}

void Filter::learn(const json& event) {
  const std::string id = text_of(event, "job", "");
  if (id.empty()) return;
  const auto [place, fresh] = places_.try_emplace(id, jobs_.size());
  if (fresh) {
    jobs_.push_back({{"job", id},
                     {"name", text_of(event, "name")},
                     {"user", text_of(event, "user")},
                     {"gpus", json::array()}});
  }
  const std::string uuid = text_of(event, "gpu_uuid", "");
  json& gpus = jobs_[place->second]["gpus"];
  const bool known = uuid.empty() || std::any_of(gpus.begin(), gpus.end(), [&](const json& gpu) {
                       return text_of(gpu, "uuid") == uuid && is_on(gpu);
                     });
  if (known) return;
  json gpu = {{"uuid", uuid}, {"active", true}};
  const auto index = indexes_.find(uuid);
  if (index != indexes_.end()) gpu["index"] = index->second;
  gpus.push_back(std::move(gpu));
}

std::optional<Error> Filter::keep(MonitorClient& monitor, json& events) {
  if (selection_.means_all()) return std::nullopt;
  if (!looked_) look(monitor);
  for (const json& event : events) learn(event);
  const auto found = select(jobs_, selection_);
  json gpus = json::array();
  for (const auto& [uuid, index] : indexes_) gpus.push_back({{"uuid", uuid}, {"index", index}});
  if (const auto unknown = unknown_gpu(selection_, gpus, jobs_); found && unknown) return unknown;
  const bool may_come = follows_ && selection_.is_pattern();
  const bool none = !found && found.error().code == kNoSuchJobOrGpu;
  if (none && !may_come) {
    return Error{kNoSuchJobOrGpu,
                 fmt::format("no event is about '{}'; `switchyard events` lists what is remembered",
                             fmt::join(selection_.words, " "))};
  }
  if (!found && !none) return found.error();
  std::set<std::string> ids;
  if (found) {
    for (const std::size_t place : *found) ids.insert(text_of(jobs_[place], "job"));
  }
  json kept = json::array();
  for (json& event : events) {
    if (ids.contains(text_of(event, "job", ""))) kept.push_back(std::move(event));
  }
  events = std::move(kept);
  return std::nullopt;
}

}  // namespace switchyard::tools
