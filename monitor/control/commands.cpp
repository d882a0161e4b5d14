#include "monitor/control/commands.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "monitor/control/audit.h"
#include "monitor/control/card_commands.h"
#include "monitor/control/config_listing.h"
#include "monitor/control/event_listing.h"
#include "monitor/control/listing.h"
#include "monitor/control/reply.h"
#include "monitor/control/report_command.h"
#include "monitor/control/settings_commands.h"
#include "monitor/control/timeline_listing.h"
#include "monitor/core/lanes.h"
#include "monitor/core/observing.h"
#include "monitor/residency/contexts.h"
#include "monitor/residency/gangs.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

// {"op":"create","card":{...}} needs two.
constexpr int kDeepest = 8;
constexpr char kGpuForms[] = "the index or the UUID of a GPU";

// The job that the request names, if the peer may change it; else null, and `out` is the refusal.
Job* target_of(Monitor& monitor, const Peer& peer, const json& request, json& out) {
  const std::string target = text_of(request, "target").value_or("");
  Job* job = monitor.registry().find_target(target);
  if (job == nullptr) {
    out = refusal(kNoSuchJobOrGpu,
                  fmt::format("no job '{}': 'switchyard ps' lists the jobs there are", target));
    return nullptr;
  }
  if (may_change(owner_of(*job), peer.owner())) return job;
  const char* where = job->uid == peer.uid ? " outside of this container" : "";
  out = refusal(kNoPermission, fmt::format("job '{}' belongs to {}{}: only its owner or root may "
                                           "change it",
                                           job->name, user_name(job->uid), where));
  return nullptr;
}

// Why a job's memory has not left: something failed, it took too long, or somebody wants it back.
json not_out(const Job& job) {
  const residency::Failure& failure = job.memory->failure;
  const std::string why =
      failure.failed ? failure_text(failure) : "somebody asked for it to be swapped in meanwhile";
  return refusal(failure.overdue ? kTimedOut : kRefusedByPolicy,
                 fmt::format("the memory of job '{}' was not swapped out{}: {}", job.name,
                             job.pause->on ? ", the job stays paused" : "", why));
}

std::optional<json> reply_if_moved(Monitor& monitor, const Job& job, Time now) {
  const Migration& move = *job.migration;
  if (migration::is_under_way(move.state)) return std::nullopt;
  if (move.failure.empty()) return list_alone(monitor, job, now);
  return refusal(move.code, fmt::format("job '{}' did not move and stays on GPU {}: {}", job.name,
                                        monitor.gpus()[move.from].info.index, move.failure));
}

// Nullopt while there is something to wait for.
std::optional<json> reply_if_ready(Monitor& monitor, Awaits awaits, Job& job, Time now) {
  if (awaits == Awaits::kMoved) return reply_if_moved(monitor, job, now);
  if (!job.gang->failure.empty()) {
    return refusal(job.gang->code, fmt::format("job '{}' goes on, because its ranks could not be "
                                               "stopped together: {}",
                                               job.name, job.gang->failure));
  }
  if (gangs::waits(job)) return std::nullopt;
  const ResidencyState where = residency_of(monitor.registry(), job);
  bool ready = true;
  if (awaits == Awaits::kDrained || awaits == Awaits::kHeld)
    ready = drained(monitor.registry(), job, now) != Drained::kNo;
  if (awaits == Awaits::kIn) ready = where == ResidencyState::kResident;
  if (awaits == Awaits::kOut) {
    if (!wanted_out(job)) return not_out(job);
    // Or it has freed on its way all that could leave.
    ready =
        where == ResidencyState::kSwapped ||
        (where == ResidencyState::kResident && job.memory->state == residency::State::kSwappedOut);
  }
  if (!ready) return std::nullopt;
  return list_alone(monitor, job, now);
}

// When a pause that is asked for now ends; 0: without a time. Nullopt: `out` is the refusal.
std::optional<Time> pause_end(const json& request, Time now, json& out) {
  const auto text = text_of(request, "timeout_seconds");
  if (!text) return Time{0};
  const auto timeout = parse_pause(*text);
  if (timeout) return *timeout == Time{0} ? Time{0} : now + *timeout;
  out = nonsense("timeout", *text, kPauseForms);
  return std::nullopt;
}

// Why none of the job's memory can leave, or empty.
std::string why_nothing_leaves(Monitor& monitor, const Job& job) {
  if (!nothing_leaves(monitor.registry(), job)) return {};
  std::string why = "none of it is swappable: see 'switchyard ps --memory'";
  for_lanes(monitor.registry(), job, [&](const Client& client, unsigned lane, const Client::Lane&) {
    const unsigned sees = client.page->lane_count();
    // Its library decided that when it joined.
    if (sees < 2 || client.page->memory(lane).swappable) return;
    if (sees == abi::kMaxGpus && monitor.gpus().size() > abi::kMaxGpus) {
      why = fmt::format(
          "its process {} may see more than {} GPUs: choose them with CUDA_VISIBLE_DEVICES",
          client.peer.pid, abi::kMaxGpus);
      return;
    }
    why = fmt::format(
        "its process {} sees {} GPUs that cannot all access each other's memory: start a process "
        "for each GPU, with CUDA_VISIBLE_DEVICES",
        client.peer.pid, sees);
  });
  return why;
}

// Where the answer has to wait, `answer` says for what. REQUIRES: the peer may change the job.
json hold(Monitor& monitor, const Peer& peer, Job& job, const std::string& op, const json& request,
          Time now, Answer& answer) {
  json out;
  const auto until = pause_end(op == "pause" ? request : json::object(), now, out);
  if (!until) return out;
  const std::string release = text_of(request, "release").value_or("false");
  const std::string contexts = text_of(request, "contexts").value_or("false");
  if (release != "true" && release != "false") {
    return nonsense("release", release, "true or false");
  }
  if (contexts != "false" && (contexts != "true" || release != "true")) {
    return nonsense("contexts", contexts, "true or false, and true only with release");
  }
  const bool pauses = op == "pause";
  const bool leaves = op == "swap-out" || (pauses && release == "true");
  if ((leaves || op == "swap-in") && !job.knobs.swappable) {
    return refusal(kRefusedByPolicy,
                   fmt::format("the memory of job '{}' cannot be swapped out: start the job "
                               "with 'switchyard run --swappable'",
                               job.name));
  }
  const Releases releases = !leaves              ? Releases::kNothing
                            : contexts == "true" ? Releases::kContextsToo
                                                 : Releases::kMemory;
  if (releases == Releases::kContextsToo) {
    if (const std::string why = why_contexts_stay(monitor.registry(), job); !why.empty()) {
      return refusal(
          kRefusedByPolicy,
          fmt::format("the contexts of job '{}' cannot leave its GPU: {}", job.name, why));
    }
  } else if (const std::string why = leaves ? why_nothing_leaves(monitor, job) : ""; !why.empty()) {
    return refusal(kRefusedByPolicy,
                   fmt::format("the memory of job '{}' cannot be swapped out: {}", job.name, why));
  }
  if (const std::string why = leaves ? gangs::why_no_cut(monitor.registry(), job) : "";
      !why.empty()) {
    return refusal(kRefusedByPolicy,
                   fmt::format("the memory of job '{}' cannot be swapped out: {}", job.name, why));
  }
  standing::look(monitor.registry(), job, now);
  if (const std::string why = leaves ? standing::why_it_stands(monitor.registry(), job) : "";
      !why.empty()) {
    return refusal(kRefusedByPolicy,
                   fmt::format("the memory of job '{}' cannot be swapped out: {}", job.name, why));
  }
  // A gang that is on its way into its pause is paused for a person.
  const bool was_paused = job.pause->on || gangs::waits(job);
  gangs::forget_failure(job);
  if (pauses) monitor.pause(job, {.until = *until, .releases = releases, .by = peer}, now);
  if (op == "resume") monitor.resume(job, now, peer);
  if (op == "swap-out") monitor.swap_out(job, now, peer);
  if (op == "swap-in") monitor.swap_in(job, now, peer);
  const Awaits awaits = leaves              ? Awaits::kOut
                        : gangs::waits(job) ? Awaits::kHeld
                        : pauses            ? Awaits::kDrained
                                            : Awaits::kIn;
  if (auto ready = reply_if_ready(monitor, awaits, job, now)) {
    if (op == "resume" && ready->value("ok", false)) (*ready)["was_paused"] = was_paused;
    return *ready;
  }
  answer.awaits = awaits;
  answer.job = job.key;
  return list_alone(monitor, job, now);
}

// The GPU that a person means. Nullopt: `out` is the refusal.
std::optional<std::size_t> gpu_named(const GpuAccounts& gpus, const std::string& word, json& out) {
  const bool is_index =
      !word.empty() && word.size() < 4 && word.find_first_not_of("0123456789") == std::string::npos;
  const bool is_uuid = word.size() > 4 && word.rfind("GPU-", 0) == 0;
  if (!is_index && !is_uuid) {
    out = nonsense("--to", word, kGpuForms);
    return std::nullopt;
  }
  std::vector<std::size_t> found;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const GpuInfo& info = gpus[gpu].info;
    if (is_uuid ? info.uuid_text.rfind(word, 0) == 0 : std::to_string(info.index) == word)
      found.push_back(gpu);
  }
  if (found.size() == 1) return found.front();
  out = found.empty() ? refusal(kNoSuchJobOrGpu,
                                fmt::format("there is no GPU {}: 'switchyard status' lists the "
                                            "GPUs there are",
                                            word))
                      : refusal(kUsage, fmt::format("several GPUs begin with {}: give more of the "
                                                    "UUID",
                                                    word));
  return std::nullopt;
}

json migrate(Monitor& monitor, const Peer& peer, Job& job, const json& request, Time now,
             Answer& answer) {
  json out;
  const auto to = gpu_named(monitor.gpus(), text_of(request, "to").value_or(""), out);
  if (!to) return out;
  monitor.sampler().measure_if_old(*to, now);
  standing::look(monitor.registry(), job, now);
  if (const std::string why = monitor.migrations().why_not(job, *to, now); !why.empty()) {
    return refusal(kRefusedByPolicy, fmt::format("job '{}' cannot go to GPU {}: {}", job.name,
                                                 monitor.gpus()[*to].info.index, why));
  }
  monitor.migrate(job, *to, now, peer);
  if (auto ready = reply_if_ready(monitor, Awaits::kMoved, job, now)) return *ready;
  answer.awaits = Awaits::kMoved;
  answer.job = job.key;
  return list_alone(monitor, job, now);
}

bool only_reads(const std::string& op) {
  return op == "version" || op == "status" || op == "ps" || op == "events" || op == "past events" ||
         op == "report" || op == "timeline";
}

// People see fresh figures, but can't make us ask the driver all the time. The later parts of a
// listing are as of its first one: to look at all jobs takes longer than to list some of them.
// A user without anything left of its budget is told what the last tick saw.
void look_for_listing(Monitor& monitor, uid_t account, bool of_jobs, bool goes_on, Time now) {
  Registry& registry = monitor.registry();
  if (!registry.may_work(account)) return;
  const std::uint64_t before = monitor.work();
  const bool changed = of_jobs && standing::look_at_all(registry, now);
  if (!goes_on) {
    for (std::size_t gpu = 0; gpu < monitor.gpus().size(); ++gpu) {
      monitor.sampler().measure_if_old(gpu, now);
    }
    monitor.look(now);
    if (of_jobs) {
      monitor.count_usage(now);
      monitor.look_at_unmanaged(now);
    }
  } else if (changed) {
    monitor.look_at_status(now);
  }
  registry.work().spend(account, 1 + monitor.work() - before);
}

json dispatch(Monitor& monitor, const Peer& peer, const json& request, Time now, Answer& answer) {
  const std::string op = text_of(request, "op").value_or("");
  if (monitor.settings().observes && !only_reads(op)) return refusal(kRefusedByPolicy, kObserves);
  answer.looks = !only_reads(op);
  if (op == "version") {
    json out = success();
    out["version"] = kVersion;
    out["layout"] = abi::kLayoutVersion;
    out["pid"] = ::getpid();
    return out;
  }
  if (op == "status" || op == "ps") {
    if (request.contains("iterations")) monitor.statistics().ask(now);
    if (request.contains("latency")) monitor.statistics().counters.begin();
    const bool goes_on = op == "ps" && goes_on_after(request).value_or(0) != 0;
    look_for_listing(monitor, peer.account(), op == "ps", goes_on, now);
    answer.looks = !goes_on;  // or nobody comes when the next of its deadlines is due
    json out = op == "ps" ? list_jobs(monitor, peer, request, now) : list_status(monitor, now);
    out.update(success());
    return out;
  }
  if (op == "report" || op == "past events") {
    json out = success();  // the history has the rest
    answer.report = op == "report" ? report_query(monitor, peer, request, out)
                                   : past_events_query(monitor, peer, request, out);
    return out;
  }
  if (op == "create") return create_job(monitor, peer, request, now, answer);
  const bool holds = op == "pause" || op == "resume" || op == "swap-out" || op == "swap-in";
  if (holds || op == "set" || op == "migrate") {
    json out;
    Job* job = target_of(monitor, peer, request, out);
    if (job == nullptr) return out;
    if (op == "set") return change_job(monitor, peer, *job, request, now);
    return holds ? hold(monitor, peer, *job, op, request, now, answer)
                 : migrate(monitor, peer, *job, request, now, answer);
  }
  if (op == "events") return list_events(monitor, request, now);
  if (op == "timeline") return list_timeline(monitor, request, now);
  if (op == "config") return list_config(monitor, peer);
  if (op == "policy") return choose_policy(monitor, peer, request, now);
  if (op == "means") return choose_means(monitor, peer, request, now);
  if (op == "stop") return stop_monitor(monitor, peer, request);
  return refusal(
      kUsage,
      fmt::format(
          "no operation '{}': there are version, status, ps, events, past events, "
          "timeline, create, set, pause, resume, swap-out, swap-in, migrate, policy, means, "
          "config, report and stop",
          op));
}

std::string rules_text(Monitor& monitor) {
  const policy::Rules& rules = monitor.scheduler().rules();
  return fmt::format("policy {}, minimum {:.4g}%, waits {}, backend {}", policy_name(rules.kind),
                     rules.minimum * 100, waits_name(rules),
                     means_name(monitor.scheduler().chosen()));
}

json dispatch_and_log(Monitor& monitor, const Peer& peer, const json& request, Time now,
                      Answer& answer) {
  const std::string before = rules_text(monitor);
  json out = dispatch(monitor, peer, request, now, answer);
  const auto text = command_text(request, out, before, rules_text(monitor));
  if (!text) return out;
  bool last = false;
  if (monitor.users().bounded(peer.account()) &&
      !monitor.command_lines().may(peer.account(), now, last)) {
    return out;
  }
  note_command(monitor, peer, request, out, *text, now);
  spdlog::info("{}: {}{}", actor(peer), *text,
               last ? "; further commands of this user are not logged for a minute" : "");
  return out;
}

}  // namespace

Answer answer_command(Monitor& monitor, const Peer& peer, std::string_view request, Time now) {
  Answer answer;
  // To copy or to print nested values takes stack by their depth.
  bool deep = false;
  const auto shallow = [&deep](int depth, json::parse_event_t, json&) {
    deep = deep || depth > kDeepest;
    return depth <= kDeepest;
  };
  const json parsed = json::parse(request, shallow, false);
  const json out = deep ? refusal(kUsage, fmt::format("the request is nested more than {} deep: "
                                                      "a request is one JSON object with 'op'",
                                                      kDeepest))
                   : parsed.is_object() ? dispatch_and_log(monitor, peer, parsed, now, answer)
                                        : refusal(kUsage, "a request is one JSON object with 'op'");
  answer.json = dump(out);
  return answer;
}

Time patience(Awaits awaits) {
  // Memory that stops leaving is given up before, and the answer says why.
  if (awaits == Awaits::kOut || awaits == Awaits::kMoved) return std::chrono::hours(1);
  // Ranks come, or are given up; then it is as with any pause.
  if (awaits == Awaits::kHeld) return cut::kComesWithin + std::chrono::seconds(3);
  return std::chrono::seconds(awaits == Awaits::kIn ? 2 : 1);
}

std::optional<std::string> answer_awaited(Monitor& monitor, Awaits awaits, JobKey key, Time now,
                                          bool last) {
  if (awaits != Awaits::kDrained) monitor.follow_residency(now);
  return answer_if_ready(monitor, awaits, key, now, last);
}

std::optional<std::string> answer_if_ready(Monitor& monitor, Awaits awaits, JobKey key, Time now,
                                           bool last) {
  Job* job = monitor.registry().find(key);
  if (job == nullptr) return dump(refusal(kNoSuchJobOrGpu, "the job ended meanwhile"));
  if (const auto ready = reply_if_ready(monitor, awaits, *job, now)) return dump(*ready);
  if (!last) return std::nullopt;
  if (awaits == Awaits::kMoved) {
    return dump(refusal(kTimedOut, fmt::format("job '{}' is still on its way", job->name)));
  }
  if (awaits == Awaits::kOut) {
    return dump(refusal(
        kTimedOut, fmt::format("the memory of job '{}' is still being swapped out", job->name)));
  }
  return dump(list_alone(monitor, *job, now));
}

}  // namespace switchyard::monitor
