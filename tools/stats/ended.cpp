#include "tools/stats/ended.h"

#include <algorithm>
#include <utility>

#include "tools/base/output.h"

namespace switchyard::tools {

using nlohmann::json;

bool has_ended(const json& job) { return truth_of(job, "ended"); }

void keep_ended(const json& earlier, json& after) {
  const json there = list_of(after, "jobs");
  for (const json& job : list_of(earlier, "jobs")) {
    const std::string id = text_of(job, "job");
    const bool same = std::any_of(there.begin(), there.end(),
                                  [&id](const json& each) { return text_of(each, "job") == id; });
    if (same) continue;
    json last = job;
    last["ended"] = true;
    after["jobs"].push_back(std::move(last));
  }
}

void forget_ended(json& listing) {
  json& jobs = listing["jobs"];
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(), has_ended), jobs.end());
}

}  // namespace switchyard::tools
