#include "tools/base/targets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <set>
#include <utility>

#include "tools/base/interrupt.h"
#include "tools/base/monitor_client.h"
#include "tools/base/unserved.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

Error which_job(const Selection& selection) {
  return {kUsage, fmt::format("{}: which job? Give a NAME, --all, --user, --gpu or --state; see "
                              "`switchyard {} --help`",
                              selection.command, selection.command)};
}

Target target_of(const json& job, bool alone) {
  return {text_of(job, "job"), text_of(job, "name", text_of(job, "job")), alone};
}

bool may_change(const json& job) {
  return ::geteuid() == 0 || number_of(job, "uid", ~0ull) == ::geteuid();
}

int say(const std::optional<Error>& error) { return error ? fail(*error) : int{kOk}; }

// For a word that is no job's name or id, as the monitor has said by `unknown`.
int act_on_word(const Selection& selection, const ActOn& act, const Error& unknown) {
  auto listing = MonitorClient::ask_any({{"op", "ps"}});
  if (!listing) return fail(unknown);
  const auto& jobs = list_of(*listing, "jobs");
  const auto found = select(jobs, selection);
  if (!found) return fail(found.error().code == kNoSuchJobOrGpu ? unknown : found.error());
  if (found->empty()) return fail(unknown);
  const Target target = target_of(jobs[found->front()], true);
  const std::string& word = selection.words.front();
  // It is there: something else is not, a GPU say.
  if (target.id == word || target.name == word) return fail(unknown);
  return say(act(target));
}

}  // namespace

void print_answer(const json& answer, const Target& target) {
  target.alone ? print_json(answer) : print_json_line(answer);
}

void take_jobs_or_all(Subcommand& sub, Selection& selection) {
  selection.command = sub.name();
  sub.words("NAME", selection.words,
            "names or ids of jobs, beginnings of ids, PIDs, or patterns such as 'train-*'")
      .option("--user", "USER,...", selection.users, "the jobs of these users")
      .option("--gpu", "GPU,...", selection.gpus, "the jobs on these GPUs, by index or UUID")
      .option("--state", "STATE,...", selection.states,
              "the jobs in these states, as running or held");
}

void take_jobs(Subcommand& sub, Selection& selection) {
  take_jobs_or_all(sub, selection);
  sub.flag("--all", selection.all, "all jobs; only root changes those of others");
}

Result<json> list_for(const Selection& selection) {
  if (selection.means_all()) return which_job(selection);
  auto listing = MonitorClient::ask_any({{"op", "ps"}});
  const bool named = !selection.words.empty();
  if (!listing && named && is_unserved(listing.error())) {
    return no_such_job(selection.words.front());
  }
  return listing;
}

std::optional<Error> keep_selected(json& listing, const Selection& selection, const json* earlier) {
  if (selection.means_all()) return std::nullopt;
  const auto found = select(list_of(listing, "jobs"), selection);
  if (!found && earlier == nullptr) return found.error();
  json jobs = std::move(listing["jobs"]);  // each is large: they are moved
  std::set<std::string> ids;
  if (earlier != nullptr) {
    for (const json& job : list_of(*earlier, "jobs")) ids.insert(text_of(job, "job"));
  }
  if (found) {
    for (const std::size_t place : *found) ids.insert(text_of(jobs[place], "job"));
  }
  json kept = json::array();
  for (json& job : jobs) {
    if (ids.contains(text_of(job, "job"))) kept.push_back(std::move(job));
  }
  listing["jobs"] = std::move(kept);
  return std::nullopt;
}

int for_each_job(const Selection& selection, const ActOn& act) {
  if (selection.means_all()) return fail(which_job(selection));
  if (selection.words.size() == 1 && !selection.is_pattern()) {
    const std::string& word = selection.words.front();
    const auto error = act({word, word, true});
    if (!error || error->code != kNoSuchJobOrGpu) return say(error);
    return act_on_word(selection, act, *error);
  }
  auto listing = list_for(selection);
  if (!listing) return fail(listing.error());
  const auto& jobs = list_of(*listing, "jobs");
  const auto found = select(jobs, selection);
  if (!found) return fail(found.error());
  std::vector<const json*> meant;
  for (const std::size_t place : *found) {
    if (!selection.is_pattern() || may_change(jobs[place])) meant.push_back(&jobs[place]);
  }
  if (meant.empty()) return fail({kNoSuchJobOrGpu, "no job of yours is selected"});
  int code = kOk;
  for (const json* job : meant) {
    const int its = say(act(target_of(*job, meant.size() == 1)));
    if (code == kOk) code = its;
    if (its == kInterrupted) break;
  }
  return code;
}

}  // namespace switchyard::tools
