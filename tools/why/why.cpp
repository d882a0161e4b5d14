#include "tools/why/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tools/base/monitor_client.h"
#include "tools/base/output.h"
#include "tools/base/targets.h"
#include "tools/base/terminal.h"
#include "tools/stats/rates.h"
#include "tools/why/ended.h"
#include "tools/why/sentences.h"
#include "tools/why/together.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLately{1};

constexpr char kExamples[] = R"(Examples:
  switchyard why train
      what it waits for, since when, whose doing that is, and what would help
  switchyard why --user alice --state held,waiting
  switchyard why train --json | jq -r '.jobs[].state_by.name'

A job that runs is told with what it had of the GPU within the last second, and with whose time
slices it waited for. The command looks for a second then. NAME is a job's name or id, the
beginning of an id, the PID of one of its processes, or a pattern such as 'train-*'. Of a job that
has ended it tells how, as far as the monitor remembers.

Exit status: 0, 2 a bad value or an ambiguous id, 3 no monitor, 4 no such job, also where it ended
meanwhile, 7 the monitor does not answer.)";

const json& job_of(const json& listing, const std::string& id) {
  static const json none;
  for (const json& job : list_of(listing, "jobs")) {
    if (text_of(job, "job") == id) return job;
  }
  return none;
}

json listed(const Told& told) {
  json out = json::object();
  for (const char* key : {"job", "name", "user", "state", "reason", "state_text",
                          "state_since_seconds", "state_by"}) {
    out[key] = told.job.value(key, json());
  }
  out["why"] = told.why;
  out["lately"] = nullptr;
  if (told.lately.is_null()) return out;
  for (const char* key :
       {"interval_seconds", "gpu_seconds", "gpu_seconds_estimated", "waits_ratio", "slices_of"}) {
    out["lately"][key] = told.lately.value(key, json());
  }
  return out;
}

struct Options {
  Selection selection;
  bool json = false;
};

// The same error, with what the events say if the job that is named has ended.
Error explained(const Error& error, const Selection& selection) {
  if (error.code != kNoSuchJobOrGpu || selection.words.size() != 1) return error;
  const std::string& name = selection.words.front();
  const auto reply = MonitorClient::ask_any({{"op", "events"}, {"target", name}});
  const std::string text = reply ? ended_text(name, list_of(*reply, "events")) : "";
  return text.empty() ? error : Error{error.code, text};
}

int why(const Options& options) {
  const auto look = look_at(options.selection);
  if (!look) return fail(explained(look.error(), options.selection));
  if (options.json) {
    json jobs = json::array();
    for (const Told& told : look->told) jobs.push_back(listed(told));
    print_json({{"jobs", std::move(jobs)}});
    return kOk;
  }
  for (std::size_t i = 0; i < look->told.size(); ++i) {
    fmt::print("{}{}\n", i == 0 ? "" : "\n", filled(look->told[i].why, terminal_columns()));
  }
  return kOk;
}

}  // namespace

Result<Look> look_at(const Selection& selection) {
  auto listing = list_for(selection);
  if (!listing) return listing.error();
  const auto found = select(list_of(*listing, "jobs"), selection);
  if (!found) return found.error();
  std::vector<std::string> ids;
  bool again = false;
  for (const std::size_t place : *found) {
    const json& job = list_of(*listing, "jobs")[place];
    ids.push_back(text_of(job, "job"));
    again = again || needs_lately(job);
  }
  if (ids.empty()) return Error{kNoSuchJobOrGpu, "no job is selected"};
  json lately;
  CoreLooks cores;
  if (again) {
    const auto before = Clock::now();
    cores.before = core_waits_of_members(list_of(*listing, "jobs"));
    std::this_thread::sleep_for(kLately);
    auto next = list_for(selection);
    if (!next) return next.error();
    cores.seconds = std::chrono::duration<double>(Clock::now() - before).count();
    cores.after = core_waits_of_members(list_of(*listing, "jobs"));
    lately = rates(*listing, *next, cores.seconds);
    *listing = std::move(*next);
  }
  Look look;
  for (const std::string& id : ids) {
    const json& job = job_of(*listing, id);
    if (job.is_null()) continue;
    const json& had = job_of(lately, id);
    const json& jobs = list_of(*listing, "jobs");
    look.told.push_back(
        {job, why_text(jobs, job, had) + together_text(jobs, list_of(lately, "jobs"), job, cores),
         had});
  }
  if (look.told.empty()) return Error{kNoSuchJobOrGpu, "the job ended meanwhile"};
  look.listing = std::move(*listing);
  return look;
}

void add_why(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("why", "say why a job does not run, or is slow", kExamples);
  take_jobs(sub, options->selection);
  sub.monitor_options(options->json).acts([options] { return why(*options); });
}

}  // namespace switchyard::tools
