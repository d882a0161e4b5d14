#include "tools/trace/only.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/base/known_gpus.h"
#include "tools/base/output.h"

namespace switchyard::tools::trace {
namespace {

using nlohmann::json;

// As a selection takes it.
json listed(const Timeline& timeline, JobKey key, const Job& job, const json& living) {
  json out = {{"job", job.id}, {"name", job.name}, {"user", job.user}, {"gpus", json::array()}};
  for (const Lane& lane : timeline.lanes) {
    if (lane.job != key) continue;
    const Gpu& gpu = timeline.gpus[lane.gpu];
    out["gpus"].push_back({{"index", gpu.index}, {"uuid", gpu.uuid}, {"active", true}});
  }
  for (const json& each : living) {
    if (!job.lives || text_of(each, "job") != job.id) continue;
    for (const char* name : {"state", "processes"}) out[name] = each.value(name, json());
  }
  return out;
}

// The new place of each lane that stays.
std::map<std::size_t, std::size_t> keep_lanes(Timeline& timeline, const std::set<JobKey>& jobs) {
  std::map<std::size_t, std::size_t> places;
  std::vector<Lane> kept;
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    if (!jobs.contains(timeline.lanes[lane].job)) continue;
    places[lane] = kept.size();
    kept.push_back(std::move(timeline.lanes[lane]));
  }
  timeline.lanes = std::move(kept);
  return places;
}

}  // namespace

std::optional<Error> keep_only(Timeline& timeline, const Selection& selection, const json& living) {
  if (selection.means_all()) return std::nullopt;
  json all = json::array();
  std::vector<JobKey> keys;
  for (const auto& [key, job] : timeline.jobs) {
    all.push_back(listed(timeline, key, job, living));
    keys.push_back(key);
  }
  const auto found = select(all, selection);
  if (!found) return found.error();
  json gpus = json::array();
  for (const Gpu& gpu : timeline.gpus) gpus.push_back({{"index", gpu.index}, {"uuid", gpu.uuid}});
  if (const auto unknown = unknown_gpu(selection, gpus, all)) return unknown;
  std::set<JobKey> jobs;
  for (const std::size_t place : *found) jobs.insert(keys[place]);
  const auto places = keep_lanes(timeline, jobs);
  std::vector<Arrow> arrows;
  for (Arrow arrow : timeline.arrows) {
    const auto from = places.find(arrow.from_lane), to = places.find(arrow.to_lane);
    if (from == places.end() || to == places.end()) continue;
    arrow.from_lane = from->second;
    arrow.to_lane = to->second;
    arrows.push_back(arrow);
  }
  timeline.arrows = std::move(arrows);
  for (std::vector<Users>& of_gpu : timeline.users) {
    std::vector<Users> left;
    for (const Users& users : of_gpu) {
      Users those{users.from, users.to, {}};
      for (const std::size_t lane : users.lanes) {
        if (const auto place = places.find(lane); place != places.end()) {
          those.lanes.push_back(place->second);
        }
      }
      if (!those.lanes.empty()) left.push_back(std::move(those));
    }
    of_gpu = std::move(left);
  }
  return std::nullopt;
}

}  // namespace switchyard::tools::trace
