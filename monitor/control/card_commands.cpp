#include "monitor/control/card_commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "monitor/control/listing.h"
#include "monitor/control/reply.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

constexpr std::size_t kMostCommand = 200;   // of the command line that the history keeps
constexpr std::size_t kMostVisible = 1024;  // items of CUDA_VISIBLE_DEVICES that are read

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

JobCard program_defaults() {
  JobCard card{};
#define SWITCHYARD_DEFAULT(field, env, capacity, fallback, ...) set_text(card.field, fallback);
  SWITCHYARD_KNOBS(SWITCHYARD_DEFAULT)
#undef SWITCHYARD_DEFAULT
  return card;
}

// The first setting that `request` names and that is fixed when a job starts. That is its id, its
// name, or a setting that its processes have read or decided by by then. Null: none.
const char* fixed_in(const json& request) {
#define SWITCHYARD_FIND_FIXED(field, env, capacity, fallback, Kind, option, type, changeable, ...) \
  if (!(changeable) && request.contains(#field)) return #field;
  SWITCHYARD_KNOBS(SWITCHYARD_FIND_FIXED)
#undef SWITCHYARD_FIND_FIXED
  return nullptr;
}

// The process that keeps a created job alive: the asker, unless it names another of its user's.
pid_t creator_of(const Peer& peer, const json& request) {
  // One of a PID namespace that cannot be seen from here: its numbers are others' here.
  if (peer.pid <= 0) return peer.pid;
  const auto found = request.find("pid");
  if (found == request.end() || !found->is_number_integer()) return peer.pid;
  const auto said = found->get<std::int64_t>();
  if (said <= 0 || said > 0x7fffffff || said == peer.pid) return peer.pid;
  const auto pid = static_cast<pid_t>(said);
  // In another PID namespace the asker's own number means itself.
  if (own_pid(peer.pid) == pid) return peer.pid;
  const auto owner = process_owner(pid);
  return owner && may_change({*owner, container_id(pid)}, peer.owner()) ? pid : peer.pid;
}

// The GPUs that a job to come will see, from the text of CUDA_VISIBLE_DEVICES. Empty: all. There is
// room for half a million items in a request, and no time for them in the loop.
std::vector<std::size_t> visible_gpus(const GpuAccounts& gpus, const json& request) {
  std::vector<std::size_t> out;
  const auto text = text_of(request, "cuda_visible_devices");
  if (!text) return out;
  std::size_t items = 0;
  for (std::size_t at = 0; at <= text->size() && items < kMostVisible; ++items) {
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

// The card's values of the settings that `request` names; "none" where there is none.
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

}  // namespace

json create_job(Monitor& monitor, const Peer& peer, const json& request, Time now, Answer& answer) {
  JobCard card = monitor.default_card(peer.owner());
  fill_empty(card, program_defaults());
  std::string why;
  const auto given = request.find("card");
  if (given != request.end() && !given->is_object()) return refusal(kUsage, "'card' is no object");
  if (given != request.end() && !read_knobs(*given, card, why)) return refusal(kUsage, why);
  const auto knobs = parse_card(card, why);
  if (!knobs) return refusal(kUsage, why);
  if (why = monitor.caps_of(peer.owner()).exceeded(peer.owner(), *knobs, monitor.gpus().largest());
      !why.empty()) {
    return refusal(kRefusedByPolicy, why);
  }
  const pid_t creator = creator_of(peer, request);
  const Job* job = monitor.create(card, peer.owner(), creator > 0 ? creator : -1,
                                  visible_gpus(monitor.gpus(), request), now, why);
  if (job == nullptr) return refusal(kRefusedByPolicy, why);
  if (const auto command = text_of(request, "command")) {
    monitor.registry().find(job->key)->command = printable(*command).substr(0, kMostCommand);
  }
  answer.created = job->key;
  answer.creator = creator;
  json out = success();
  out["job"] = job->id;
  out["name"] = job->name;
  return out;
}

// Why the caps refuse it; empty: they don't. A job keeps its other settings, whatever they are.
std::string over_the_caps(const Monitor& monitor, const Peer& peer, const json& request,
                          Knobs knobs, std::uint64_t gpu_bytes) {
  if (!request.contains("priority")) knobs.priority = Priority::kLow;
  if (!request.contains("share")) knobs.share.weight = 0;
  if (!request.contains("memory")) knobs.memory.reset();
  return monitor.caps_of(peer.owner()).exceeded(peer.owner(), knobs, gpu_bytes);
}

json change_job(Monitor& monitor, const Peer& peer, Job& job, const json& request, Time now) {
  JobCard card = job.card;
  std::string why;
  if (const char* fixed = fixed_in(request)) {
    return refusal(kUsage, fmt::format("{} is fixed when the job starts", fixed));
  }
  if (!read_knobs(request, card, why)) return refusal(kUsage, why);
  const auto knobs = parse_card(card, why);
  if (!knobs) return refusal(kUsage, why);
  if (why = over_the_caps(monitor, peer, request, *knobs, monitor.gpus().largest()); !why.empty()) {
    return refusal(kRefusedByPolicy, why);
  }
  if (knobs->memory && !monitor.memory().can_become(job, *knobs->memory, now, why)) {
    return refusal(kRefusedByPolicy, why);
  }
  json before = settings_in(job.card, request);
  monitor.change(job, card, *knobs, now);
  json out = list_alone(monitor, job, now);
  out["before"] = std::move(before);
  return out;
}

}  // namespace switchyard::monitor
