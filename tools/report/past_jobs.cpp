#include "tools/report/past_jobs.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "tools/base/monitor_client.h"
#include "tools/base/output.h"
#include "tools/base/parts.h"

namespace switchyard::tools {

using nlohmann::json;

Result<json> past_jobs(const json& request) {
  json brief = {{"op", "report"}, {"by", "job"}, {"brief", true}};
  for (const char* key : {"since", "until", "gpus"}) {
    if (request.contains(key)) brief[key] = request[key];
  }
  auto reply = MonitorClient::ask_any(brief);
  if (!reply) return reply.error();
  json rows = std::move((*reply)["rows"]);
  const auto listing = MonitorClient::ask_any({{"op", "ps"}});
  if (!listing) return rows;
  std::map<std::string, const json*> living;
  for (const json& job : list_of(*listing, "jobs")) living[text_of(job, "job")] = &job;
  for (json& row : rows) {
    const auto job = living.find(text_of(row, "job"));
    if (job == living.end() || !row["exit"].is_null()) continue;
    for (const char* key : {"state", "gpus", "processes"}) {
      row[key] = job->second->value(key, json());
    }
    living.erase(job);
  }
  // The history hears of a job seconds after it has begun.
  if (request.contains("until") || request.contains("gpus")) return rows;
  for (const auto& [id, job] : living) {
    rows.push_back(*job);
    rows.back()["exit"] = nullptr;
  }
  return rows;
}

std::optional<Error> narrow(json& request, const Selection& selection) {
  Selection rest = selection;
  rest.words.clear();
  // Its options are good ones?
  if (const auto checked = select(json::array(), rest); !checked) return checked.error();
  if (!selection.gpus.empty()) request["gpus"] = parts_of(selection.gpus);
  // The monitor picks by user. As ids, more of a busy user's jobs than a frame takes could be meant,
  // and another user's may have the same id.
  if (!selection.users.empty()) request["jobs"]["users"] = parts_of(selection.users);
  if (selection.words.empty() && selection.states.empty()) return std::nullopt;
  rest.words = selection.words;
  rest.gpus.clear();
  const auto jobs = past_jobs(request);
  if (!jobs) return jobs.error();
  const auto found = select(*jobs, rest);
  if (!found && found.error().code == kNoSuchJobOrGpu) {
    return Error{kNoSuchJobOrGpu,
                 fmt::format("'{}' names no job of this time; `switchyard report` lists them",
                             fmt::join(selection.words, " "))};
  }
  if (!found) return found.error();
  json ids = json::array();
  for (const std::size_t place : *found) ids.push_back(text_of((*jobs)[place], "job"));
  // A monitor that knows no users takes a list.
  (selection.users.empty() ? request["jobs"] : request["jobs"]["ids"]) = std::move(ids);
  return std::nullopt;
}

}  // namespace switchyard::tools
