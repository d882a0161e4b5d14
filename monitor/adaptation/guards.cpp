#include "monitor/adaptation/guards.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "monitor/core/lanes.h"
#include "monitor/core/minus.h"

namespace switchyard::monitor {
namespace {

using guard::Measure;
using guard::Measures;
using guard::What;

// A monitor that stood still knows nothing of that time.
constexpr Time kLongest = std::chrono::seconds(1);

// Nobody is held back for a job of a lower class. Of the same class, only a job of the same user is
// that has no guard of its own.
bool answerable(const Job& guarded, const Job& job) {
  if (job.knobs.priority != guarded.knobs.priority) {
    return job.knobs.priority < guarded.knobs.priority;
  }
  return job.uid == guarded.uid && job.knobs.guard <= 0;
}

const char* measure_text(Measure measure) {
  switch (measure) {
    case Measure::kSlices:
      return "shorter slices";
    case Measure::kCopies:
      return "short slices for its copies";
    case Measure::kCeiling:
      return "a ceiling on its GPU time";
    case Measure::kHold:
      break;
  }
  return "a hold";
}

std::string growth_text(const guard::Growth& growth) {
  return fmt::format(
      "it has work {:.0f} % of the time ({:.0f} % before), {:.0f} kernels ({:.0f}) "
      "and {:.0f} copies ({:.0f}) per second, which move {:.2f} GB/s ({:.2f}) over links and "
      "{:.2f} GB/s ({:.2f}) inside the GPU",
      100 * growth.now.worked_s, 100 * growth.before.worked_s, growth.now.kernels,
      growth.before.kernels, growth.now.copies, growth.before.copies, growth.now.link_bytes * 1e-9,
      growth.before.link_bytes * 1e-9, growth.now.device_bytes * 1e-9,
      growth.before.device_bytes * 1e-9);
}

std::string text_of(const guard::Event& event, const std::string& other) {
  const double missing = 100 * std::max(event.missing, 0.0);
  const char* measure = measure_text(event.measure);
  switch (event.what) {
    case What::kDisturbed:
      return fmt::format("{:.1f} % of its rate is missing since '{}' has grown: {}; '{}' gets {}",
                         missing, other, growth_text(event.growth), other, measure);
    case What::kNext:
      return fmt::format("that helped, and {:.1f} % is missing: '{}' gets {} as well", missing,
                         other, measure);
    case What::kInstead:
      return fmt::format("that did not help, {:.1f} % is missing: '{}' gets {} instead", missing,
                         other, measure);
    case What::kAnswered:
      return fmt::format("{:.1f} % of its rate is missing: '{}' stays held back", missing, other);
    case What::kCleared:
      return fmt::format("nothing helped, {:.1f} % of its rate is missing: '{}' is not held back",
                         missing, other);
    case What::kEases:
      return fmt::format("whether '{}' still needs {} is tried", other, measure);
    case What::kNeeded:
      return fmt::format("'{}' needs {}: without it {:.1f} % of the rate is missing", other,
                         measure, missing);
    case What::kOver:
      return fmt::format("'{}' disturbs it no longer, and is free", other);
    case What::kGone:
      return fmt::format("'{}' has no work any more, and is free", other);
    case What::kStopped:
      break;
  }
  return fmt::format("it does not iterate now, or has no guard: '{}' is free", other);
}

void bound(double& value, double most) {
  if (value == 0 || most < value) value = most;
}

void add(Restraint& to, const Job& guarded, Measures on) {
  if (on.none()) return;
  const double part = guarded.knobs.guard;
  to.guarded.insert(guarded.key);
  if (on.has(Measure::kSlices)) bound(to.most_weight, guard::part_of(part) * weight_of(guarded));
  if (on.has(Measure::kCopies)) to.copies = true;
  if (on.has(Measure::kCeiling) || on.has(Measure::kHold)) {
    bound(to.ceiling, guard::part_of(part));
  }
  if (on.has(Measure::kHold)) to.held = true;
}

}  // namespace

bool Guards::count_lane(const Client& client, unsigned lane, const Client::Lane& state, OnGpu& on) {
  const LaneReport report = client.page->report(lane);
  const GateReport gate = client.page->gate(lane);
  Counted& before = counted_[{client.id, lane}];
  const std::uint64_t work = minus(report.work(), before.work);
  const std::uint64_t copies = std::min(work, minus(report.copies, before.copies));
  const auto link = static_cast<double>(minus(report.link_bytes, before.link_bytes));
  const auto device = static_cast<double>(minus(report.device_bytes, before.device_bytes));
  before = {report.work(), report.copies, report.link_bytes, report.device_bytes};
  on.sums.kernels += static_cast<double>(work - copies);
  on.sums.copies += static_cast<double>(copies);
  on.sums.link_bytes += link;
  on.sums.device_bytes += device;
  on.to_move_s = std::min(on.to_move_s + guard::moving_seconds(link, device), seconds(kLongest));
  const bool queued = numbered(state, gate) && !gate.done;
  return work > 0 || queued || gate.held_threads > 0;
}

void Guards::count(Time now) {
  const Time span = counted_at_ == Time{0} ? Time{0} : std::min(now - counted_at_, kLongest);
  counted_at_ = now;
  for (auto& [key, on] : activity_) on.wants = false;
  std::set<std::pair<std::uint64_t, std::size_t>> there;
  for (const auto& [id, client] : registry_.clients()) {
    if (client->observer) continue;
    for (const auto& [lane, state] : client->lanes) {
      if (!state.last.has_context()) continue;
      there.insert({client->job, state.gpu});
      OnGpu& on = activity_[{client->job, state.gpu}];
      // Counts from before it was seen first belong to no time.
      const bool fresh = !counted_.contains({id, lane});
      OnGpu ignored;
      const bool wants = count_lane(*client, lane, state, fresh ? ignored : on);
      on.wants = on.wants || (wants && !fresh);
    }
  }
  for (auto& [key, on] : activity_) {
    if (on.wants) on.sums.worked_s += seconds(span);
    const double moves = std::min(on.to_move_s, seconds(span));
    on.sums.moving_s += moves;
    on.to_move_s -= moves;
  }
  // Its next context begins anew: nobody looks at it meanwhile, and all that it ever did would count
  // as done at once.
  std::erase_if(activity_, [&](const auto& each) { return !there.contains(each.first); });
  std::erase_if(counted_,
                [&](const auto& each) { return registry_.client(each.first.first) == nullptr; });
}

Measures Guards::possible(const Job& guarded, const Job& job,
                          const std::set<std::size_t>& gpus) const {
  // Beside a high class at work everybody below has the shortest slices anyway.
  const bool yields =
      guarded.knobs.priority == Priority::kHigh && job.knobs.priority != Priority::kHigh;
  bool slices = !yields;
  bool gates = true;
  for_lanes(registry_, job, [&](const Client& client, unsigned, const Client::Lane& lane) {
    if (!gpus.contains(lane.gpu) || !lane.last.has_context()) return;
    const MeansInForce means = scheduler_.in_force(lane.gpu);
    slices = slices && means.slices && !slice_controller_.refuses(lane.gpu, client.id);
    gates = gates && means.gates && lane.gate.state != abi::kGateRefused;
  });
  Measures out;
  if (slices) out = out.with(Measure::kSlices).with(Measure::kCopies);
  if (gates) out = out.with(Measure::kCeiling).with(Measure::kHold);
  return out;
}

guard::Other Guards::other_of(const Job& guarded, const Job& job,
                              const std::set<std::size_t>& gpus) const {
  guard::Other out;
  for (const std::size_t gpu : gpus) {
    const auto on = activity_.find({job.key, gpu});
    if (on == activity_.end()) continue;
    const guard::Activity& sums = on->second.sums;
    out.activity =
        guard::Activity::of_each([&](auto sum) { return out.activity.*sum + sums.*sum; });
    out.wants = out.wants || on->second.wants;
  }
  out.answerable = answerable(guarded, job);
  out.possible = possible(guarded, job, gpus);
  return out;
}

guard::Look Guards::look_of(const Job& job, Time now) {
  guard::Look out;
  out.guard = job.knobs.guard;
  out.held = is_held(registry_, job);
  for_clients(registry_, job, [&](const Client& client) {
    auto begun = reader_.read(registry_, progress_, client, now);
    if (!begun) return;
    out.ranks.push_back({client.id, begun->marker, begun->broken, std::move(begun->at)});
  });
  const std::set<std::size_t> gpus = used_gpus(registry_, job);
  for (const auto& [key, other] : registry_.jobs()) {
    if (key == job.key) continue;
    if (is_on(registry_, other, gpus)) out.others[key] = other_of(job, other, gpus);
  }
  return out;
}

bool Guards::restrain() {
  std::map<JobKey, Restraint> wanted;
  for (const auto& [key, state] : states_) {
    for (const auto& [job, answer] : state.answers) {
      add(wanted[job], *registry_.find(key), answer.on);
    }
  }
  bool changed = false;
  for (auto& [key, job] : registry_.jobs()) {
    const Restraint& now = wanted[key];
    changed = changed || now != *job.restraint;
    job.restraint.write() = now;
  }
  return changed;
}

bool Guards::follow(Time now) {
  std::erase_if(states_, [&](const auto& each) { return registry_.find(each.first) == nullptr; });
  const bool any = std::any_of(registry_.jobs().begin(), registry_.jobs().end(),
                               [](const auto& each) { return each.second.knobs.guard > 0; });
  if (!any && states_.empty()) {
    due_ = Time{0};
    return restrain();
  }
  due_ = now + kEvery;
  count(now);
  std::set<ClientId> read;
  for (const auto& [key, job] : registry_.jobs()) {
    if (job.knobs.guard <= 0 && !states_.contains(key)) continue;
    read.insert(job.clients.begin(), job.clients.end());
    // Each is looked at beside all others: many of one user are that user's to pay.
    if (!registry_.may_work(account_of(job))) continue;
    const std::uint64_t before = registry_.work().done();
    const guard::Look look = look_of(job, now);
    registry_.work().spend(account_of(job), registry_.work().done() - before);
    for (const guard::Event& event : guard::next(states_[key], look, now)) {
      const Job* other = registry_.find(event.job);
      spdlog::info("job '{}' guards itself: {}", job.name,
                   text_of(event, other != nullptr ? other->name : "a job that has ended"));
    }
    if (job.knobs.guard <= 0) states_.erase(key);
  }
  reader_.forget_all_but(read);
  return restrain();
}

const guard::State& Guards::of(const Job& job) const {
  static const guard::State none;
  const auto found = states_.find(job.key);
  return found != states_.end() ? found->second : none;
}

}  // namespace switchyard::monitor
