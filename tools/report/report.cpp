#include "tools/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/base/co_run.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/report/bill.h"
#include "tools/report/past_jobs.h"
#include "tools/report/span.h"
#include "tools/report/tables.h"

namespace switchyard::tools {
namespace {

struct Options {
  Selection selection;
  std::optional<std::string> by, since, until, slurm_job;
  bool csv = false;
  bool json = false;
};

constexpr char kByForms[] = "job, user, gpu, day or slurmjob";
constexpr char kSlurmForms[] = "the number of a job, such as 4711";

constexpr char kExamples[] = R"(Examples:
  switchyard report
      the jobs of the last 24 hours
  switchyard report --by user --since 2026-11-01
      how much each user had this month
  switchyard report --gpu 0 --since 12h
      who had GPU 0 last night
  switchyard report 'train-*' --user alice --by day --since 7d
  switchyard report --by gpu --since 7d
      idle hours of each GPU, and memory that jobs held without work
  switchyard report --by day --csv > days.csv
  switchyard report --by slurmjob --since 7d
      how much each job of Slurm had this week
  switchyard report --slurm-job "$SLURM_JOB_ID"
      its bill, for an epilog: a line for each of its jobs here, as soon as they have ended

NAME is a job's name or id, the beginning of an id, the PID of a process that lives, or a pattern. A
job must fit all of the options. With --gpu, all sums count these GPUs alone. A name or another
option selects jobs, so the table of unmanaged processes is left out.

Sums are kept by the hour, so a span is of whole hours. TIME on several GPUs adds up. GPU TIME is
the time that jobs had the GPU; "~" marks a sum that is partly an estimate of a job's part of a GPU.
Over seconds it may be wrong by two thirds, and the sum of all jobs of the GPU by a tenth. WAITED is
the time in which Switchyard or other jobs kept a job from the GPU, IDLE that in which it brought no
work. IDLE MEM is memory on the GPU in that time, in GiB hours. PEAK MEM is of one GPU, sampled each
second. LIVED has "+" while the job lives, and "?" where its end was not seen.
Unmanaged processes have a table of their own: by user, where --by is job. Their GPU TIME is an
estimate from NVML's samples. MEMORY is in GiB hours.
Command lines are in --json and --csv, for their owner and root.

Exit status: 0, 1 the history cannot be read or there is none, 2 bad value, 3 no monitor, 4 it
knows no such job or GPU, 7 the monitor or its disk does not answer in time.)";

// The bill of one job of Slurm.
int tell_slurm_job(const Options& options, std::int64_t since) {
  const std::string& number = *options.slurm_job;
  const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
  if (number.empty() || !digits) return fail(bad_value("--slurm-job", number, kSlurmForms));
  const bool selects = !options.selection.means_all();
  if (selects || options.by || options.until || options.csv || options.json) {
    return fail({kUsage, "--slurm-job prints a bill: leave all but --since out"});
  }
  auto monitor = MonitorClient::connect_reader();
  if (!monitor) return fail(monitor.error());
  const auto rows = await_bills(
      *monitor, {{"op", "report"}, {"by", "job"}, {"since", since}, {"slurm_job", number}});
  if (!rows) return fail(rows.error());
  if (rows->empty()) {
    return fail(
        {kNoSuchJobOrGpu,
         fmt::format("no bill: the history of this machine knows no Slurm job {}", number)});
  }
  for (const auto& row : *rows) fmt::print("{}\n", ended_bill_text(row));
  return kOk;
}

// Living jobs that would do more in an island.
void tell_companies() {
  const auto listing = MonitorClient::ask_any({{"op", "ps"}});
  if (!listing) return;
  for (const Company& company : companies_of(tenants_of(list_of(*listing, "jobs")))) {
    fmt::print("{}\n", company_text(company));
  }
}

int report(const Options& options) {
  const std::string by = options.by.value_or("job");
  constexpr std::array kBy = {"job", "user", "gpu", "day", "slurmjob"};
  if (std::find(kBy.begin(), kBy.end(), by) == kBy.end()) {
    return fail(bad_value("--by", by, kByForms));
  }
  if (options.csv && options.json) {
    return fail({kUsage, "--csv and --json exclude each other: give one of them"});
  }
  const std::int64_t now = std::time(nullptr);
  nlohmann::json request = {{"op", "report"}, {"by", by}, {"since", now - 86400}};
  for (const auto& [key, text] : {std::pair{"since", options.since}, {"until", options.until}}) {
    if (!text) continue;
    const auto point = parse_point(*text, now);
    if (!point) return fail(bad_value(std::string("--") + key, *text, kSpanForms));
    request[key] = *point;
  }
  if (options.slurm_job) {
    return tell_slurm_job(options, options.since ? request["since"].get<std::int64_t>() : 0);
  }
  if (request.contains("until") && request["until"] <= request["since"]) {
    return fail({kUsage, "--until is not after --since: nothing lies between them"});
  }
  if (const auto refused = narrow(request, options.selection)) return fail(*refused);
  if (!options.json && !options.csv) request["brief"] = true;
  auto reply = MonitorClient::ask_any(request);
  if (!reply) return fail(reply.error());
  if (options.json) {
    for (auto& row : (*reply)["rows"]) add_error(row);
    print_json(*reply);
  } else if (options.csv) {
    fmt::print("{}", report_csv(by, list_of(*reply, "rows"), list_of(*reply, "unmanaged")));
  } else {
    fmt::print("{}", report_table(by, *reply));
    if (by == "job" && !options.until && options.selection.means_all()) tell_companies();
  }
  return kOk;
}

}  // namespace

void add_report(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("report", "show who had the GPUs, and for how long", kExamples);
  take_jobs_or_all(sub, options->selection);
  sub.option("--by", "WHAT", options->by,
             fmt::format("a row for each: {} (default: job)", kByForms))
      .option("--since", "WHEN", options->since,
              "when it begins: 8h, 7d, 2026-11-27, '2026-11-27 14:00', yesterday (default: 24h)")
      .option("--until", "WHEN", options->until, "when it ends, likewise (default: now)")
      .option("--slurm-job", "ID", options->slurm_job,
              "the bill of this job of Slurm, as lines; waits up to 6 s for its end")
      .flag("--csv", options->csv, "print comma-separated values")
      .monitor_options(options->json)
      .acts([options] { return report(*options); });
}

}  // namespace switchyard::tools
