// What `switchyard run` asks of the monitor: the knobs from options and environment, checked.
//
// Concept. An option wins over its SWITCHYARD_* variable, which wins over the default. Inside
// another run (SWITCHYARD_JOB is set) the variables are the outer job's. A nested run belongs to
// that job and asks for nothing of its own.
//
// Threading: reads the environment; call it from the only thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

// By the field names of card.h. Empty text: not asked for.
using Card = std::map<std::string, std::string>;

// `options` has the fields that were given on the command line. kUsage with the value and the
// accepted forms when one is invalid.
Result<Card> make_card(const Card& options);

// A setting that was asked for, and differs from what a job gets anyway: a promise that only a
// monitor keeps. The name alone is none.
struct Promise {
  std::string field;   // of card.h
  std::string origin;  // what the person wrote: "--memory" or "SWITCHYARD_MEMORY"
  std::string text;
};
// pre: make_card(options) accepts them.
std::vector<Promise> promises_of(const Card& options);

// "--memory and SWITCHYARD_LIMIT"
std::string origins_text(const std::vector<Promise>& promises);

// Whether this process belongs to a job already: `run` was called inside another.
bool inside_job();

// The promises that the outer job does not keep already, because it was started with another value.
std::vector<Promise> beyond_outer_job(const Card& options);

// The "create" request for `card`. The history shows the command line.
nlohmann::json create_request(const Card& card, const std::vector<std::string>& command = {});

}  // namespace switchyard::tools
