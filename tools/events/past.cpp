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

json events_of_ended(MonitorClient& monitor, const std::string& id) {
  auto past = read_past_events(monitor, kEver, id);
  json request{{"op", "events"}, {"target", id}, {"since", past ? past->last : 0}};
  json out = past ? std::move(past->events) : json::array();
  for (bool more = true; more;) {
    auto reply = monitor.ask(request);
    if (!reply) return out;
    for (json& event : (*reply)["events"]) out.push_back(std::move(event));
    request["since"] = number_of(*reply, "last");
    more = truth_of(*reply, "more");
  }
  return out;
}

}  // namespace switchyard::tools
