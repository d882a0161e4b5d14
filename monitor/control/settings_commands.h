// What the owner of a monitor chooses for all jobs at once: the policy, the means, and its end.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

// The operations "means" and "policy" (switchyard/wire.h). Only the monitor's owner and root change
// anything; everybody may ask for the policy.
nlohmann::json choose_means(Monitor& monitor, const Peer& peer, const nlohmann::json& request,
                            Time now);
nlohmann::json choose_policy(Monitor& monitor, const Peer& peer, const nlohmann::json& request,
                             Time now);

// Whether it may change the monitor and see all of it: root, and the user that it runs as.
bool owns_the_monitor(const Peer& peer);

// The operation "stop": the monitor ends soon after its answer. With jobs only if it is forced to.
nlohmann::json stop_monitor(Monitor& monitor, const Peer& peer, const nlohmann::json& request);

// As `status` shows them.
std::string policy_name(policy::Kind kind);
std::string means_name(Means means);
std::string slice_text(const policy::Rules& rules);  // as parse_slice() reads it
std::string waits_name(const policy::Rules& rules);

}  // namespace switchyard::monitor
