// What `switchyard run` asks of the monitor: the knobs from options and environment, checked.
//
// Concept. An option wins over its SWITCHYARD_* variable, which wins over the default. Inside
// another run (SWITCHYARD_JOB is set) the variables are the outer job's and don't count: a nested
// run is a job of its own.
//
// Threading: reads the environment; call it from the only thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/base/result.h"

namespace switchyard::tools {

// By the field names of card.h. Empty text: not asked for.
using Card = std::map<std::string, std::string>;

// `options` has the fields that were given on the command line. kUsage with the value and the
// accepted forms when one makes no sense.
Result<Card> make_card(const Card& options);

// The "create" request for `card`.
nlohmann::json create_request(const Card& card);

}  // namespace switchyard::tools
