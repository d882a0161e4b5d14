#include "tools/ps/ps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "tools/base/guards.h"
#include "tools/base/monitor_client.h"
#include "tools/base/stalls.h"
#include "tools/base/table.h"
#include "tools/base/unserved.h"
#include "tools/ps/about.h"
#include "tools/ps/memory.h"
#include "tools/ps/unmanaged.h"

namespace switchyard::tools {
namespace {

constexpr char kExamples[] = R"(Examples:
  switchyard ps
  switchyard ps -a
  switchyard ps --memory
  switchyard ps --json | jq '.jobs[] | {name, user, state}'

One line per job and GPU. SHARE is asked/got in percent of the GPU's time; got is '-' until it is
known, and has a '~' where time slices allot it and nothing measures it. DEADLINE is the time left.
A pause with a time-out shows the time left, too. SLICE is the hardware time slice in force;
'default' is the driver's own. '!' means that the driver refused the slice that was asked for.
RESIDENT is the part of MEMORY that is on the device, for swappable jobs. RANK is the job's ranks on
that GPU, of how many, in its largest NCCL communicator.

STATE says why a job does not run:
  held (limit)              it has used up its --limit
  held (guard)              it slows down a job that has a --guard; a line below names that
  held (cut)                its ranks are being stopped together, for a pause, a swap or a turn
  waiting (turn)            another job has the GPU
  waiting (memory)          it needs memory of the GPU; 'memory of NAME' names the job that has it
  stopped (signal)          its process can't act: it is stopped by a signal, or by a debugger, in
                            a frozen cgroup, writes a core dump, or waits for a disk
  idle (no CUDA yet)        it has made no CUDA context
  unmanaged (old library)   its library speaks another version than the monitor
  swapped (...), moving     its memory is in the host, or is being copied; 'GPU 1' names where, if
                            that of another GPU is still there; 'parked on' names another GPU
                            that has it instead of the host

--memory shows which memory of each job can be swapped out, and why the rest cannot. USED is the sum
of SWAPPABLE, OVERHEAD (contexts, modules) and STAYS (not swappable, by reason). ON GPU is the part
of SWAPPABLE that is on the device. IPC-imported memory is charged to the job that made it. OUT and
IN are the bytes copied to the host and back; TIMES is how often the job was swapped out. SKIPPED
was not copied, because it was unchanged since the last swap or all zero.

-a shows GPU processes that no job has: user, container by its cgroup, memory by NVML. Their SHARE is
estimated from NVML's samples, so it has a '~'. COMMAND is for root and the owner of the process.
Without -a the last line counts them.

Without a monitor there are no jobs: the table is empty, and the GPUs' processes stand below it.
Exit status: 0, also without a monitor; 2 a socket path that is too long, 3 nothing listens at a
socket that was named or left behind, 5 that monitor is not to be trusted, 7 it does not answer.)";

std::string ratio(const nlohmann::json& gpu, const char* key) {
  const auto found = gpu.find(key);
  if (found == gpu.end() || !found->is_number()) return "-";
  return fmt::format("{:.0f}%", found->get<double>() * 100);
}

// "25%/~24%": asked and got. A share that slices allot is marked.
std::string share_text(const nlohmann::json& gpu) {
  return fmt::format("{}/{}{}", ratio(gpu, "share_asked_ratio"),
                     truth_of(gpu, "share_got_estimated") ? "~" : "",
                     ratio(gpu, "share_got_ratio"));
}

// "held (limit)", "paused (swapped) 42 s": the state, the reason that the monitor gives for it, and
// what is left of a pause.
std::string state_text(const nlohmann::json& job, const std::string& state) {
  const std::string reason = text_of(job, "state_reason", "");
  std::string text = reason.empty() ? state : fmt::format("{} ({})", state, reason);
  const auto left = job.find("pause_seconds");
  if (state != "paused" || left == job.end() || !left->is_number()) return text;
  return text + " " + human_seconds(static_cast<double>(number_of(job, "pause_seconds")));
}

// Of the job's further GPUs: where its memory is, unless it is there.
std::string residency_text(const nlohmann::json& gpu) {
  const std::string where = text_of(gpu, "residency");
  return where == "resident" ? "" : where;
}

// The time left until its deadline; late ones count upwards.
std::string deadline(const nlohmann::json& job) {
  const auto found = job.find("deadline_seconds");
  if (found == job.end() || !found->is_number()) return "-";
  const double left = found->get<double>();
  return left < 0 ? human_seconds(-left) + " late" : human_seconds(left);
}

std::string memory(const nlohmann::json& gpu) {
  const std::uint64_t quota = number_of(gpu, "memory_quota_bytes");
  const std::string used = human_bytes(number_of(gpu, "memory_used_bytes"));
  return quota == 0 ? used : used + " / " + human_bytes(quota);
}

std::string resident(const nlohmann::json& job, const nlohmann::json& gpu) {
  if (!truth_of(job, "swappable")) return "-";
  return human_bytes(number_of(gpu, "memory_resident_bytes"));
}

// The ranks on this GPU, and how many there are: "0/2" or "2,3/4".
std::string ranks(const nlohmann::json& job, const nlohmann::json& gpu) {
  const auto& communicators = list_of(job, "communicators");
  if (communicators.empty()) return "-";
  std::string text;
  for (const auto& rank : list_of(communicators[0], "ranks")) {
    if (text_of(rank, "gpu_uuid") != text_of(gpu, "uuid")) continue;
    const auto number = rank.find("rank");
    const bool known = number != rank.end() && number->is_number_unsigned();
    text +=
        (text.empty() ? "" : ",") + (known ? std::to_string(number->get<std::uint64_t>()) : "?");
  }
  return text.empty() ? "-" : fmt::format("{}/{}", text, number_of(communicators[0], "size"));
}

std::string slice(const nlohmann::json& gpu) {
  const std::string status = text_of(gpu, "slice_status");
  if (status == "none") return "-";
  const std::string text = human_micros(number_of(gpu, "slice_in_force_us"));
  return status == "refused" ? text + " !" : text;
}

std::string pids(const nlohmann::json& job) {
  std::string text;
  const auto& processes = list_of(job, "processes");
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < std::min(processes.size(), kShown); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(number_of(processes[i], "pid"));
  }
  if (processes.size() > kShown) text += fmt::format(" +{}", processes.size() - kShown);
  return text;
}

Tone tone_of(const std::string& state) {
  if (state == "running") return Tone::kGood;
  return state == "idle" ? Tone::kFaint : Tone::kWarning;
}

// Columns for some jobs alone: RESIDENT stands behind MEMORY, when some job's memory can leave;
// RANK before GPU, when some job has communicators.
constexpr std::size_t kResidentColumn = 8;
constexpr std::size_t kRankColumn = 11;
struct Extra {
  bool resident = false;
  bool ranks = false;
};

void add_job(Table& table, const nlohmann::json& job, const Extra& extra) {
  const std::string state = text_of(job, "state");
  const std::string priority = text_of(job, "priority");
  const auto row = [&](const nlohmann::json& gpu, bool first) -> std::vector<Table::Cell> {
    const bool placed = gpu.is_object();
    const auto name = text_of(job, "name", text_of(job, "job"));
    std::vector<Table::Cell> cells = {
        first ? name : "",
        first ? text_of(job, "user") : "",
        first ? priority : "",
        {first ? state_text(job, state) : residency_text(gpu),
         tone_of(first ? state : text_of(gpu, "residency"))},
        placed ? share_text(gpu) : "-",
        first ? percent_of(job, "limit_ratio") : "",
        first ? deadline(job) : "",
        placed ? memory(gpu) : "-",
        placed ? slice(gpu) : "-",
        placed ? std::to_string(number_of(gpu, "launches") + number_of(gpu, "graph_launches"))
               : "-",
        placed ? std::to_string(number_of(gpu, "refusals")) : "-",
        placed ? text_of(gpu, "uuid").substr(0, 12) : "-",
        first ? human_seconds(static_cast<double>(number_of(job, "since_seconds"))) : "",
        first ? pids(job) : ""};
    if (extra.ranks) cells.insert(cells.begin() + kRankColumn, placed ? ranks(job, gpu) : "-");
    if (extra.resident) {
      cells.insert(cells.begin() + kResidentColumn, placed ? resident(job, gpu) : "-");
    }
    return cells;
  };
  const auto& gpus = list_of(job, "gpus");
  if (gpus.empty()) table.add(row(nullptr, true));
  for (std::size_t i = 0; i < gpus.size(); ++i) table.add(row(gpus[i], i == 0));
}

void print_best_effort(const nlohmann::json& jobs) {
  for (const auto& job : jobs) {
    if (!truth_of(job, "pause_best_effort")) continue;
    fmt::print("{}\n",
               paint(Tone::kWarning, fmt::format("{}: its pause is best effort: its processes are "
                                                 "held one by one",
                                                 text_of(job, "name"))));
  }
}

// What may still run of a paused job.
void print_undrained(const nlohmann::json& jobs) {
  for (const auto& job : jobs) {
    const auto drained = job.find("drained");
    if (text_of(job, "state") != "paused" || drained == job.end()) continue;
    if (drained->is_boolean() && drained->get<bool>()) continue;
    const char* what = drained->is_boolean()
                           ? "work that was queued before the pause still runs"
                           : "work that was queued before the pause may still run: it was not "
                             "counted";
    fmt::print("{}\n", paint(Tone::kWarning, fmt::format("{}: {}", text_of(job, "name"), what)));
  }
}

// Why memory is not where it was asked to be.
void print_stuck(const nlohmann::json& jobs) {
  for (const auto& job : jobs) {
    std::string why;
    bool waits = false;
    for (const auto& gpu : list_of(job, "gpus")) {
      why = text_of(gpu, "swap_error", why);
      waits = waits || truth_of(gpu, "swap_waits_for_room");
    }
    if (why.empty()) continue;
    fmt::print("{}\n", paint(Tone::kWarning, fmt::format("{}: {}{}", text_of(job, "name"),
                                                         waits ? "" : "swapping failed: ", why)));
  }
}

void print_jobs(const nlohmann::json& jobs) {
  using enum Table::Align;
  Extra extra;
  for (const auto& job : jobs) {
    extra.resident = extra.resident || truth_of(job, "swappable");
    extra.ranks = extra.ranks || !list_of(job, "communicators").empty();
  }
  std::vector<Table::Column> columns = {{"NAME"},
                                        {"USER"},
                                        {"PRIORITY"},
                                        {"STATE"},
                                        {"SHARE", kRight},
                                        {"LIMIT", kRight},
                                        {"DEADLINE", kRight},
                                        {"MEMORY", kRight},
                                        {"SLICE", kRight},
                                        {"LAUNCHES", kRight},
                                        {"REFUSED", kRight},
                                        {"GPU"},
                                        {"SINCE", kRight},
                                        {"PIDS"}};
  if (extra.ranks) columns.insert(columns.begin() + kRankColumn, {"RANK", kRight});
  if (extra.resident) columns.insert(columns.begin() + kResidentColumn, {"RESIDENT", kRight});
  Table table(std::move(columns));
  for (const auto& job : jobs) add_job(table, job, extra);
  fmt::print("{}", table.render());
}

struct Options {
  bool json = false;
  bool memory = false;
  bool all = false;
};

int ps(const Options& options) {
  auto reply = MonitorClient::ask_any({{"op", "ps"}});
  const bool unserved = !reply && is_unserved(reply.error());
  if (unserved) reply = list_unserved();
  if (!reply) return fail(reply.error());
  if (options.json) {
    add_about(*reply, std::chrono::system_clock::now());
    print_json(*reply);
    return kOk;
  }
  const auto& jobs = list_of(*reply, "jobs");
  const bool observed = say_observed(*reply);
  if (unserved) {
    say_unserved();
  } else if (jobs.empty() && !observed) {
    complain(kNoJobs);
  }
  if (options.memory) {
    print_memory(jobs);
  } else {
    print_jobs(jobs);
    print_best_effort(jobs);
    print_undrained(jobs);
  }
  print_stuck(jobs);
  print_guards(jobs);
  print_stalls(jobs);
  print_unmanaged(list_of(*reply, "outside"),
                  {.rows = options.all || unserved || observed, .managed = !unserved && !observed});
  return kOk;
}

}  // namespace

void add_ps(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("ps", "list the jobs: their settings and what they use", kExamples)
      .flag("-a,--all", options->all, "show the unmanaged GPU processes, too")
      .flag("--memory", options->memory,
            "show which memory can be swapped out, and why the rest cannot")
      .monitor_options(options->json)
      .acts([options] { return ps(*options); });
}

}  // namespace switchyard::tools
