// From what a person selects to the jobs that a command acts on.
//
// Concept. One word is most often the name or the id of a job: the command asks for it at once.
// Where there is no such job, and for everything else, the jobs are listed and selected from
// (selector.h). Then the command acts on each of them by its id. A pattern means jobs that the
// caller may change: one's own, and all for root. A job that is named is asked for in any case.
//
// Threading: call from the only thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tools/base/command.h"
#include "tools/base/result.h"
#include "tools/base/selector.h"

namespace switchyard::tools {

struct Target {
  std::string id;    // how to ask for it
  std::string name;  // how to speak of it
  bool alone = true;
};

// The answer about one job: as one JSON object, or one in a line where there are several.
void print_answer(const nlohmann::json& answer, const Target& target);

// Declares the words and the options. `selection` must live until the subcommand has acted.
void take_jobs(Subcommand& sub, Selection& selection);
// For a command that may mean all by default, as `ps`: there is no --all.
void take_jobs_or_all(Subcommand& sub, Selection& selection);

// The listing out of which a command selects. An error where the selection is of nothing.
Result<nlohmann::json> list_for(const Selection& selection);

// Keeps of the listing's jobs those that are selected. Where there is an earlier listing of those,
// its jobs stay selected, whatever their state is meanwhile.
std::optional<Error> keep_selected(nlohmann::json& listing, const Selection& selection,
                                   const nlohmann::json* earlier = nullptr);

// Calls `act` for each job. It returns its error, which is said here; the first one's code is the
// exit code.
using ActOn = std::function<std::optional<Error>(const Target&)>;
int for_each_job(const Selection& selection, const ActOn& act);

}  // namespace switchyard::tools
