#include "tools/stats/communication.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

json or_null(std::optional<double> value) { return value ? json(*value) : json(nullptr); }

struct Mean {
  double sum = 0;
  double weight = 0;

  void add(std::optional<double> value, double more) {
    if (!value) return;
    sum += *value * more;
    weight += more;
  }
  std::optional<double> value() const {
    return weight > 0 ? std::optional(sum / weight) : std::nullopt;
  }
};

// The first of these that holds for a process.
json state_of(const json& processes) {
  for (const char* state : {"timed", "in_graphs", "refused", "measuring"}) {
    for (const json& each : processes) {
      if (text_of(each, "communication_state") == state) return state;
    }
  }
  return nullptr;
}

// The rank that waits least is the one that the others wait for; null: nobody waits.
json waited_for(const json& ranks) {
  const json* least = nullptr;
  double most = 0;
  double few = 0;
  for (const json& each : ranks) {
    const auto waits = real_of(each, "peers_ratio");
    if (!waits) continue;
    most = std::max(most, *waits);
    if (least != nullptr && *waits >= few) continue;
    few = *waits;
    least = &each;
  }
  if (least == nullptr || most <= few) return nullptr;
  return {{"rank", (*least)["rank"]}, {"pid", (*least)["pid"]}, {"ratio", most - few}};
}

}  // namespace

json rank_of(const json& job, std::uint64_t pid) {
  for (const json& communicator : list_of(job, "communicators")) {
    for (const json& each : list_of(communicator, "ranks")) {
      const auto found = each.find("rank");
      if (number_of(each, "pid") == pid && found != each.end()) return *found;
    }
  }
  return nullptr;
}

json rate_communication(const json& job) {
  Mean ratio;
  Mean hidden;
  Mean peers;
  json ranks = json::array();
  for (const json& process : list_of(job, "processes")) {
    const auto its = real_of(process, "communication_ratio");
    if (!its) continue;
    const auto its_hidden = real_of(process, "communication_hidden_ratio");
    const auto its_peers = real_of(process, "communication_peers_ratio");
    ratio.add(its, 1);
    hidden.add(its_hidden, *its);
    peers.add(its_peers, 1);
    const std::uint64_t pid = number_of(process, "pid");
    ranks.push_back({{"rank", rank_of(job, pid)},
                     {"pid", pid},
                     {"ratio", *its},
                     {"hidden_ratio", or_null(its_hidden)},
                     {"peers_ratio", or_null(its_peers)}});
  }
  json waited = waited_for(ranks);
  return {{"communication_state", state_of(list_of(job, "processes"))},
          {"communication_ratio", or_null(ratio.value())},
          {"communication_hidden_ratio", or_null(hidden.value())},
          {"communication_peers_ratio", or_null(peers.value())},
          {"communication_ranks", std::move(ranks)},
          {"waited_for_rank", std::move(waited)}};
}

std::string communication_text(const json& rates) {
  const std::string state = text_of(rates, "communication_state");
  if (state == "in_graphs") return "not timed in graphs";
  if (state == "refused") return "not timed";
  std::string more;
  const auto say = [&](const char* key, const char* what) {
    if (!real_of(rates, key)) return;
    more += fmt::format("{}{} {}", more.empty() ? "" : ", ", percent_of(rates, key), what);
  };
  say("communication_hidden_ratio", "hidden");
  say("communication_peers_ratio", "for peers");
  const std::string ratio = percent_of(rates, "communication_ratio");
  return more.empty() ? ratio : fmt::format("{} ({})", ratio, more);
}

}  // namespace switchyard::tools
