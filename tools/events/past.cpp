#include "tools/events/past.h"

#include <utility>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// Longer than any history.
constexpr double kEver = 1e9;

}  // namespace

Result<PastEvents> read_past_events(MonitorClient& monitor, double seconds,
                                    const std::string& target) {
  json part{{"op", "past events"}, {"seconds", seconds}, {"after", 0}};
  if (!target.empty()) part["target"] = target;
  PastEvents out;
  for (;;) {
    auto reply = monitor.ask(part);
    if (!reply) return reply.error();
    out.lost += number_of(*reply, "lost");
    for (json& event : (*reply)["events"]) out.events.push_back(std::move(event));
    const std::uint64_t more = number_of(*reply, "more_after");
    if (more <= number_of(part, "after")) {
      out.last = number_of(*reply, "last");
      return out;
    }
    part["after"] = more;
  }
}

Result<bool> read_remembered(MonitorClient& monitor, json& request, json& events,
                             std::uint64_t& lost) {
  auto reply = monitor.ask(request);
  if (!reply) return reply.error();
  lost += number_of(*reply, "lost");
  request["since"] = number_of(*reply, "last");
  request.erase("seconds");
  for (json& event : (*reply)["events"]) events.push_back(std::move(event));
  return truth_of(*reply, "more");
}

json remembered_events_of(MonitorClient& monitor, const std::string& id, std::uint64_t since) {
  json request{{"op", "events"}, {"target", id}};
  if (since != 0) request["since"] = since;
  json out = json::array();
  std::uint64_t lost = 0;
  for (Result<bool> more = true; more && *more;) {
    more = read_remembered(monitor, request, out, lost);
  }
  return out;
}

json events_of_ended(MonitorClient& monitor, const std::string& id) {
  auto past = read_past_events(monitor, kEver, id);
  if (!past) return remembered_events_of(monitor, id);
  json rest = remembered_events_of(monitor, id, past->last);
  for (json& event : rest) past->events.push_back(std::move(event));
  return std::move(past->events);
}

}  // namespace switchyard::tools
