#include "tools/stats/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"
#include "tools/base/sockets.h"
#include "tools/base/table.h"
#include "tools/stats/rates.h"

namespace switchyard::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string target;
  std::string interval = "1s";
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard stats
      what the NCCL collectives of all jobs did within one second
  switchyard stats train --interval 10s
  switchyard stats train --json | jq '.jobs[].kinds_per_second'

The rates are those of a job's busiest process, and of a communicator's busiest rank: all ranks of
one launch the same operations. BYTES are those of the buffers, as nccl-tests counts them. BEHIND
names the ranks that have launched less than others: for a moment in any job, for longer where a
rank hangs. Jobs whose NCCL the library does not see have no rates.

Exit status: 0, 2 bad value, 3 no monitor, 4 no such job.)";

std::string rate_text(double rate) {
  return rate < 10 ? fmt::format("{:.1f}", rate) : fmt::format("{:.0f}", rate);
}

double number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// "rank 1 (pid 4711) by 3"
std::string behind(const nlohmann::json& communicator) {
  std::string text;
  for (const auto& rank : list_of(communicator, "behind")) {
    text +=
        fmt::format("{}rank {} (pid {}) by {}", text.empty() ? "" : ", ", number_of(rank, "rank"),
                    number_of(rank, "pid"), number_of(rank, "operations"));
  }
  return text.empty() ? "-" : text;
}

std::string kinds(const nlohmann::json& job) {
  std::string text;
  const auto found = job.find("kinds_per_second");
  if (found == job.end() || !found->is_object()) return "-";
  for (const auto& [kind, rate] : found->items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, rate_text(rate.get<double>()));
  }
  return text.empty() ? "-" : text;
}

void print(const nlohmann::json& listing) {
  using enum Table::Align;
  Table table({{"NAME"},
               {"COMMUNICATOR"},
               {"RANKS", kRight},
               {"OPS/S", kRight},
               {"BYTES/S", kRight},
               {"BY KIND"},
               {"BEHIND"}});
  for (const auto& job : list_of(listing, "jobs")) {
    table.add({text_of(job, "name"), "", "", rate_text(number(job, "collectives_per_second")),
               human_bytes(static_cast<std::uint64_t>(number(job, "bytes_per_second"))),
               kinds(job)});
    for (const auto& each : list_of(job, "communicators")) {
      table.add({"", text_of(each, "id"), std::to_string(number_of(each, "size")),
                 rate_text(number(each, "collectives_per_second")),
                 human_bytes(static_cast<std::uint64_t>(number(each, "bytes_per_second"))), "",
                 behind(each)});
    }
  }
  fmt::print("{}", table.render());
}

// Only the job that is asked for, by name or id; all where none is.
void keep_only(nlohmann::json& listing, const std::string& target) {
  if (target.empty()) return;
  auto& jobs = listing["jobs"];
  nlohmann::json kept = nlohmann::json::array();
  for (auto& job : jobs) {
    if (text_of(job, "name") == target || text_of(job, "job") == target) {
      kept.push_back(std::move(job));
    }
  }
  jobs = std::move(kept);
}

Result<nlohmann::json> ask() {
  auto reply = MonitorClient::ask_any({{"op", "ps"}});
  if (!reply && reply.error().code == kMonitorUnreachable && monitor_absent()) {
    return nlohmann::json{{"jobs", nlohmann::json::array()}};
  }
  return reply;
}

int stats(const Options& options) {
  const auto interval = parse_seconds(options.interval);
  if (!interval || interval->count() <= 0) {
    return fail(bad_value("--interval", options.interval, "a time such as 1s or 500ms"));
  }
  const auto before = ask();
  if (!before) return fail(before.error());
  const auto began = Clock::now();
  std::this_thread::sleep_for(*interval);
  const auto after = ask();
  if (!after) return fail(after.error());
  const std::chrono::duration<double> seconds = Clock::now() - began;
  nlohmann::json listing = rates(*before, *after, seconds.count());
  keep_only(listing, options.target);
  if (!options.target.empty() && listing["jobs"].empty()) {
    return fail(
        {kNoSuchJobOrGpu, fmt::format("no job '{}'; `switchyard ps` lists them", options.target)});
  }
  if (options.json) {
    print_json(std::move(listing));
  } else {
    print(listing);
  }
  return kOk;
}

}  // namespace

void add_stats(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("stats", "show what the jobs' collectives do", kExamples)
      .word("NAME", options->target, "one job's name or id")
      .option("--interval", "TIME", options->interval, "count for so long")
      .monitor_options(options->json)
      .acts([options] { return stats(*options); });
}

}  // namespace switchyard::tools
