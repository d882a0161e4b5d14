#include "monitor/control/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include "monitor/control/job_commands.h"
#include "monitor/control/listing.h"
#include "monitor/control/reply.h"
#include "monitor/control/settings_commands.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

// {"op":"create","card":{...}} needs two.
constexpr int kDeepest = 8;

// Puts the knobs that `object` names into the card. False: one doesn't fit, `why` has it.
bool read_knobs(const json& object, JobCard& card, std::string& why) {
#define SWITCHYARD_READ_KNOB(field, env, capacity, fallback, ...)                         \
  if (const auto text = text_of(object, #field); text && !set_text(card.field, *text)) {  \
    why = fmt::format(#field " '{}' is longer than the {} bytes that it may have", *text, \
                      capacity - 1);                                                      \
    return false;                                                                         \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_READ_KNOB)
#undef SWITCHYARD_READ_KNOB
  remove_none(card);
  return true;
}

JobCard default_card() {
  JobCard card{};
#define SWITCHYARD_DEFAULT(field, env, capacity, fallback, ...) set_text(card.field, fallback);
  SWITCHYARD_KNOBS(SWITCHYARD_DEFAULT)
#undef SWITCHYARD_DEFAULT
  return card;
}

// The process that keeps a created job alive: the asker, unless it names another of its user's.
pid_t creator_of(const Peer& peer, const json& request) {
  const auto found = request.find("pid");
  if (found == request.end() || !found->is_number_integer()) return peer.pid;
  const auto said = found->get<std::int64_t>();
  if (said <= 0 || said > 0x7fffffff || said == peer.pid) return peer.pid;
  const auto pid = static_cast<pid_t>(said);
  // In another PID namespace the asker's own number means itself.
  if (own_pid(peer.pid) == pid) return peer.pid;
  const auto owner = process_owner(pid);
  return owner && (peer.uid == 0 || *owner == peer.uid) ? pid : peer.pid;
}

// The GPUs that a job to come will see, from the text of CUDA_VISIBLE_DEVICES. Empty: all.
std::vector<std::size_t> visible_gpus(const GpuAccounts& gpus, const json& request) {
  std::vector<std::size_t> out;
  const auto text = text_of(request, "cuda_visible_devices");
  if (!text) return out;
  for (std::size_t at = 0; at <= text->size();) {
    const std::size_t comma = std::min(text->find(',', at), text->size());
    const std::string item = text->substr(at, comma - at);
    at = comma + 1;
    for (std::size_t gpu = 0; gpu < gpus.all().size(); ++gpu) {
      const GpuInfo& info = gpus.all()[gpu].info;
      const bool by_uuid = item.size() > 4 && info.uuid_text.rfind(item, 0) == 0;
      if (by_uuid || (item == std::to_string(info.index) && !info.mig)) out.push_back(gpu);
    }
  }
  return out;
}

json create(Monitor& monitor, const Peer& peer, const json& request, Time now, Answer& answer) {
  JobCard card = default_card();
  std::string why;
  // A cap below a default is no reason to refuse whoever did not ask for it.
  if (auto defaults = parse_card(card, why)) {
    monitor.settings().caps.lower(peer.uid, *defaults, card);
  }
  const auto given = request.find("card");
  if (given != request.end() && !given->is_object()) return refusal(kUsage, "'card' is no object");
  if (given != request.end() && !read_knobs(*given, card, why)) return refusal(kUsage, why);
  const auto knobs = parse_card(card, why);
  if (!knobs) return refusal(kUsage, why);
  if (why = monitor.settings().caps.exceeded(peer.uid, *knobs); !why.empty()) {
    return refusal(kRefusedByPolicy, why);
  }
  const pid_t creator = creator_of(peer, request);
  const Job* job = monitor.create(card, peer.uid, creator > 0 ? creator : -1,
                                  visible_gpus(monitor.gpus(), request), now, why);
  if (job == nullptr) return refusal(kRefusedByPolicy, why);
  answer.created = job->key;
  answer.creator = creator;
  json out = success();
  out["job"] = job->id;
  out["name"] = job->name;
  return out;
}

// The job that the request names, if the peer may change it; else null, and `out` is the refusal.
Job* target_of(Monitor& monitor, const Peer& peer, const json& request, json& out) {
  const std::string target = text_of(request, "target").value_or("");
  Job* job = monitor.registry().find_target(target);
  if (job == nullptr) {
    out = refusal(kNoSuchJobOrGpu,
                  fmt::format("no job '{}': 'switchyard ps' lists the jobs there are", target));
    return nullptr;
  }
  if (may_change(*job, peer.uid)) return job;
  out = refusal(kNoPermission, fmt::format("job '{}' belongs to {}: only its owner or root may "
                                           "change it",
                                           job->name, user_name(job->uid)));
  return nullptr;
}

// What the settings that `request` names are in the card; "none" where there is none.
json settings_in(const JobCard& card, const json& request) {
  json out = json::object();
#define SWITCHYARD_TELL_KNOB(field, env, capacity, fallback, ...)           \
  if (request.contains(#field)) {                                           \
    const std::string text = card.field[0] != '\0' ? card.field : fallback; \
    out[#field] = text.empty() ? "none" : text;                             \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_TELL_KNOB)
#undef SWITCHYARD_TELL_KNOB
  return out;
}

json set(Monitor& monitor, const Peer& peer, const json& request, Time now) {
  json out;
  Job* job = target_of(monitor, peer, request, out);
  if (job == nullptr) return out;
  JobCard card = job->card;
  std::string why;
  json wanted = request;
  // A job keeps its id and its name.
  wanted.erase("job");
  wanted.erase("name");
  // Its library decided at the first allocation.
  wanted.erase("swappable");
  wanted.erase("idle_release");
  wanted.erase("oversubscribe");
  if (!read_knobs(wanted, card, why)) return refusal(kUsage, why);
  const auto knobs = parse_card(card, why);
  if (!knobs) return refusal(kUsage, why);
  if (why = monitor.settings().caps.exceeded(peer.uid, *knobs); !why.empty()) {
    return refusal(kRefusedByPolicy, why);
  }
  if (knobs->memory && !monitor.memory().can_become(*job, *knobs->memory, now, why)) {
    return refusal(kRefusedByPolicy, why);
  }
  json before = settings_in(job->card, wanted);
  monitor.change(*job, card, *knobs, now);
  out = list_alone(monitor, *job, now);
  out["before"] = std::move(before);
  return out;
}

json dispatch(Monitor& monitor, const Peer& peer, const json& request, Time now, Answer& answer) {
  const std::string op = text_of(request, "op").value_or("");
  if (op == "version") {
    json out = success();
    out["version"] = kVersion;
    out["pid"] = ::getpid();
    return out;
  }
  if (op == "status" || op == "ps") {
    json out = success();
    // People see fresh figures, but can't make us ask the driver all the time.
    for (std::size_t i = 0; i < monitor.gpus().all().size(); ++i) {
      monitor.sampler().measure_if_old(i, now);
    }
    if (request.contains("iterations")) monitor.statistics().ask(now);
    monitor.look(now);
    out.update(op == "ps" ? list_jobs(monitor, request, now) : list_status(monitor, now));
    return out;
  }
  if (op == "create") return create(monitor, peer, request, now, answer);
  if (op == "set") return set(monitor, peer, request, now);
  if (op == "pause" || op == "resume" || op == "swap-out" || op == "swap-in") {
    json out;
    Job* job = target_of(monitor, peer, request, out);
    return job == nullptr ? out : hold(monitor, *job, op, request, now, answer);
  }
  if (op == "migrate") {
    json out;
    Job* job = target_of(monitor, peer, request, out);
    return job == nullptr ? out : migrate(monitor, *job, request, now, answer);
  }
  if (op == "policy") return choose_policy(monitor, peer, request, now);
  if (op == "means") return choose_means(monitor, peer, request, now);
  if (op == "stop") return stop_monitor(monitor, peer, request);
  return refusal(
      kUsage, fmt::format("no operation '{}': there are version, status, ps, create, "
                          "set, pause, resume, swap-out, swap-in, migrate, policy, means and stop",
                          op));
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
                   : parsed.is_object() ? dispatch(monitor, peer, parsed, now, answer)
                                        : refusal(kUsage, "a request is one JSON object with 'op'");
  answer.json = dump(out);
  return answer;
}

}  // namespace switchyard::monitor
