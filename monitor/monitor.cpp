#include "monitor/monitor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "monitor/core/ancestry.h"
#include "monitor/islands/failures.h"
#include "monitor/islands/loads.h"
#include "monitor/islands/members.h"
#include "monitor/residency/gangs.h"

namespace switchyard::monitor {
namespace {

constexpr Time kLoadsEvery = std::chrono::seconds(1);
// For each sixteen clients, between two looks at all jobs because some client rang.
constexpr Time kFollowPause = std::chrono::microseconds(160);
// Shims give their slices back when a monitor is silent for 2 s; before that a fresh monitor can't
// know who has a short one.
constexpr Time kQuietAtStart = std::chrono::seconds(3);
// A process that can't be watched (no pidfd) counts as dead so long after its socket closed.
constexpr Time kUnwatched = std::chrono::seconds(2);

}  // namespace

Monitor::Monitor(Gpus& gpus, Settings settings, Time now, std::function<std::uint64_t()> random)
    : door_(gpus),
      settings_(std::move(settings)),
      started_(now),
      users_(settings_.owner, settings_.users),
      registry_(std::move(random), users_),
      gpus_(gpus.list(), registry_, settings_.capacity),
      sampler_(gpus, gpus_, settings_.capacity),
      unmanaged_(now),
      memory_(registry_, gpus_, sampler_),
      residency_(registry_, gpus_, memory_, settings_.host_pool_bytes, settings_.turns),
      slice_controller_(registry_, gpus_,
                        [&] {
                          sampler_.measure_all(now);
                          const bool strangers = std::any_of(
                              gpus_.all().begin(), gpus_.all().end(),
                              [](const auto& gpu) { return !gpu.foreign_processes.empty(); });
                          return strangers ? now + kQuietAtStart : now;
                        }()),
      migrations_(registry_, gpus_, memory_, slice_controller_),
      scheduler_(registry_, gpus_, slice_controller_, too_old_for_slices(gpus.driver_version())),
      guards_(registry_, scheduler_, slice_controller_, statistics_.progress),
      weights_(registry_, statistics_.progress),
      gang_pace_(registry_),
      shared_memory_(most_shared_descriptors(), settings_.owner,
                     [this](uid_t uid, std::vector<Fd> descriptors) {
                       closer_.close(uid, std::move(descriptors));
                     }),
      now_(now),
      loads_at_(now),
      last_job_at_(now) {
  registry_.tells(journal_);
  unmanaged_.tells(journal_);
  journal_.take(event_of(EventKind::kMonitorBegins, 0, Peer{::getpid(), ::geteuid()}, now));
  name_users_rules();
  scheduler_.choose(settings_.means);
  scheduler_.choose(settings_.rules);
}

void Monitor::left(ClientId id, std::shared_ptr<void> watch) {
  Client* client = registry_.client(id);
  if (client == nullptr) return;
  spdlog::info("client {} (pid {}, {}) left", id, client->peer.pid, client->process);
  const JobKey job = client->job;
  islands::left(registry_, *client, now_);
  ledger_.leaves(*client);
  statistics_.usage.leaves(*client);
  statistics_.counters.leaves(*client);
  samples_.leaves(*client);
  sampler_.leaves(*client);
  memory_.leave(*client);
  residency_.room_came();
  slice_controller_.left(*client);
  shared_memory_.left(id);
  const bool watched = client->watched && client->peer.pid != 0;
  departed_[id] = {client->peer.pid, watched, now_ + kUnwatched, std::move(watch)};
  registry_.remove(id);
  drop_if_done(job);
}

void Monitor::died(ClientId id) {
  left(id);
  slice_controller_.died(id);
  departed_.erase(id);
}

Job* Monitor::create(const JobCard& card, const Owner& owner, pid_t creator,
                     const std::vector<std::size_t>& gpus, Time now, std::string& why) {
  now_ = now;
  const auto knobs = parse_card(card, why);
  if (!knobs) return nullptr;
  if (why = islands::refuse(registry_, owner, *knobs); !why.empty()) return nullptr;
  Job* job = registry_.make(card, *knobs, owner, now, why);
  if (job == nullptr) return nullptr;
  islands::enter(registry_, *job);
  job->gpus.create_for(gpus);
  job->asked = card;
  job->creator = creator;
  bound(*job);
  if ((knobs->memory || job->ceiling_bytes) && memory_.reserve(*job, now, why) == 0 &&
      !why.empty()) {
    creator_died(job->key);
    return nullptr;
  }
  why.clear();
  had_a_job_ = true;
  note_begin(*job, creator, now);
  spdlog::info("job '{}' ({}) made for {}", job->name, job->id, user_name(owner.uid));
  return job;
}

void Monitor::creator_died(JobKey key, std::optional<int> wait_status) {
  if (Job* job = registry_.find(key)) {
    job->creator = 0;
    job->wait_status = wait_status;
  }
  drop_if_done(key);
}

void Monitor::drop_if_done(JobKey key) {
  const Job* job = registry_.find(key);
  if (job == nullptr || job->creator != 0 || !job->clients.empty()) return;
  // One that was refused when it was made leaves no trace.
  if (!has_begun(*job)) {
    memory_.forget(*job);
    return registry_.drop(key);
  }
  spdlog::info("job '{}' ended", job->name);
  statistics_.usage.ends(*job, statuses_, now_);
  ledger_.ends(*job, now_);
  if (job_ends_) job_ends_(*job, now_);
  memory_.forget(*job);
  residency_.room_came();
  journal_.job_ends(key, job->wait_status, now_);
  registry_.drop(key);
  last_job_at_ = now_;
}

void Monitor::note_begin(const Job& job, pid_t pid, Time now) {
  journal_.job_begins(job.key, {job.id, job.name, job.uid}, pid, now);
}

void Monitor::change(Job& job, const JobCard& card, const Knobs& knobs, Time now) {
  now_ = now;
  const bool memory_changes = job.knobs.memory != knobs.memory;
  const bool other_class = job.knobs.priority != knobs.priority;
  job.card = card;
  job.knobs = knobs;
  job.made_anew = false;
  for (const ClientId id : job.clients) {
    if (const Client* client = registry_.client(id)) client->page->set_card(card);
  }
  if (memory_changes) {
    std::string ignored;
    memory_.reserve(job, now, ignored);
    for (std::size_t gpu = 0; gpu < gpus_.all().size(); ++gpu) {
      gpus_.read_credits(gpu);
      memory_.rebalance(gpu);
      memory_.write_pages(gpu);
    }
  }
  if (other_class) give_island_its_class(job, now);
  look(now);
}

// The members of an island have one class, so the others follow the one that was changed.
void Monitor::give_island_its_class(const Job& job, Time now) {
  for (const JobKey key : islands::others_of(registry_, job)) {
    Job& other = *registry_.find(key);
    if (other.knobs.priority == job.knobs.priority) continue;
    JobCard card = other.card;
    Knobs knobs = other.knobs;
    knobs.priority = job.knobs.priority;
    set_text(card.priority, to_string(knobs.priority));
    change(other, card, knobs, now);
  }
}

void Monitor::look_at_unmanaged(Time now) {
  const auto left = [this](pid_t pid) {
    return std::any_of(departed_.begin(), departed_.end(),
                       [pid](const auto& departed) { return departed.second.pid == pid; });
  };
  unmanaged_.follow(gpus_, left, now);
}

// Before a job is held or goes on: what was until now does not count for what is from now on.
void Monitor::count_usage(Time now) {
  look_at_status(now);
  statistics_.usage.tick(registry_, statuses_, now);
}

void Monitor::look_at_status(Time now) {
  const auto job_of = [this](pid_t pid) {
    const Job* job = job_by_descent(registry_, pid);
    return job != nullptr ? job->key : JobKey{0};
  };
  statuses_.look(registry_, gpus_, refused_processes_.layouts(job_of, now), now);
}

void Monitor::records_to(history::Store& store) {
  store_ = &store;
  ledger_.records_to([&store](history::Rows rows) { store.add(std::move(rows)); },
                     [] { return static_cast<std::int64_t>(std::time(nullptr)); });
}

void Monitor::pause(Job& job, const PauseWish& wish, Time now) {
  count_usage(now);
  const bool leaves = wish.releases != Releases::kNothing;
  const bool held = job.pause->on && job.pause->at_cut && !leaves;
  if (!held && gangs::is_gang(registry_, job) && gangs::why_no_cut(registry_, job).empty()) {
    using residency::Reason, residency::Reasons;
    const Reasons reasons = leaves ? Reason::kPause : Reasons();
    gangs::hold(job, {true, leaves, reasons, wish.until, wish.by}, now);
  } else {
    monitor::pause(job, wish, now);
  }
  look(now);
}

void Monitor::resume(Job& job, Time now, const std::optional<Peer>& by) {
  count_usage(now);
  gangs::cancel(registry_, job);
  want_in(job, by, now);
  monitor::resume(job, by, now);
  look(now);
}

void Monitor::swap_out(Job& job, Time now, const std::optional<Peer>& by) {
  if (gangs::is_gang(registry_, job)) {
    gangs::hold(job, {.leaves = true, .reasons = residency::Reason::kUser, .by = by}, now);
  } else {
    want_out(job, by, now);
  }
  look(now);
}

void Monitor::swap_in(Job& job, Time now, const std::optional<Peer>& by) {
  if (!gangs::only_pauses(job)) gangs::cancel(registry_, job);
  want_in(job, by, now);
  look(now);
}

void Monitor::migrate(Job& job, std::size_t to, Time now, const std::optional<Peer>& by) {
  migrations_.begin(job, to, by, now);
  look(now);
}

// True: something changed.
bool Monitor::follow_jobs(Time now) {
  followed_at_ = now;
  follow_again_at_ = Time{0};
  const bool held = gangs::follow(registry_, now);
  const bool moved = migrations_.follow(now);
  if (moved) residency_.room_came();
  return residency_.follow(now) || held || moved;
}

void Monitor::follow_residency(Time now) {
  if (follow_jobs(now)) scheduler_.look(now);
}

// Each ring of one client may be news for all jobs. Where many are, one look serves many rings.
void Monitor::follow_soon(Time now) {
  const Time pause = kFollowPause * static_cast<Time::rep>(registry_.clients().size() / 16);
  if (now - followed_at_ >= pause) return follow_residency(now);
  follow_again_at_ = followed_at_ + pause;
}

Time Monitor::look(Time now) {
  end_pauses(registry_, now);
  follow_jobs(now);
  const Time next = scheduler_.look(now);
  return earlier(next_due(), next);
}

Time Monitor::look_at_due(Time now) {
  const Time due = earlier(follow_again_at_, earlier(residency_.due(), gangs::due(registry_)));
  const bool adapted = adapt_if_due(now);
  if (adapted || end_pauses(registry_, now) || (due != Time{0} && due <= now)) return look(now);
  const Time next = scheduler_.look_at_due(now);
  return earlier(next_due(), next);
}

bool Monitor::adapt_if_due(Time now) {
  const auto over = [now](Time due) { return due != Time{0} && due <= now; };
  const bool restrained = over(guards_.due()) && guards_.follow(now);
  const bool weighed = over(weights_.due()) && weights_.follow(now);
  return restrained || weighed;
}

Time Monitor::look_at_those_of(ClientId id, Time now) {
  const Client* client = registry_.client(id);
  if (client == nullptr) return look_at_due(now);
  // Users whose clients ring too much are looked at with the next tick.
  const uid_t account = client->peer.account();
  if (!registry_.may_work(account)) return Time{0};
  islands::follow(registry_, *client, now);
  const std::uint64_t before = work();
  follow_soon(now);
  const Time next = scheduler_.look_at_those_of(*client, now);
  registry_.work().spend(account, 1 + work() - before);
  return earlier(next_due(), next);
}

std::uint64_t Monitor::work() const {
  std::uint64_t units = registry_.work().done();
  for (const GpuAccounts::Gpu& gpu : gpus_.all()) units += gpu.account.walked();
  return units;
}

Time Monitor::next_due() const {
  const Time ends = earlier(next_pause_end(registry_), gangs::due(registry_));
  const Time follows = earlier(follow_again_at_, residency_.due());
  return earlier(earlier(ends, follows), earlier(guards_.due(), weights_.due()));
}

void Monitor::tick(Time now) {
  now_ = now;
  registry_.next_tick();
  ++beat_;
  for (auto& [id, client] : registry_.clients()) client->page->set_heartbeat(beat_);
  sampler_.measure_due(now);
  if (now - loads_at_ >= kLoadsEvery) {
    loads_at_ = now;
    sampler_.measure_loads();
    islands::share_loads(registry_);
  }
  look_at_unmanaged(now);
  islands::follow_all(registry_, now);
  standing::tick(registry_, now);
  gangs::note(registry_);
  memory_.check_claims(now);
  memory_.end_waits(now);
  if (memory_.follow_use(now)) residency_.room_came();
  for (std::size_t gpu = 0; gpu < gpus_.all().size(); ++gpu) {
    gpus_.read_credits(gpu);
    memory_.rebalance(gpu);
    memory_.write_pages(gpu);
  }
  look_at_status(now);
  statistics_.tick(registry_, statuses_, now);
  ledger_.tick(now);
  samples_.tick(registry_, gpus_, now);
  guards_.follow(now);
  weights_.follow(now);
  gang_pace_.follow(now);
  std::erase_if(departed_, [&](const auto& departed) {
    const bool over = !departed.second.watched && now >= departed.second.until;
    if (over) slice_controller_.died(departed.first);
    return over;
  });
}

bool Monitor::done(Time now) const {
  if (ending_) return true;
  if (settings_.persist || !registry_.jobs().empty()) return false;
  return now - last_job_at_ >= (had_a_job_ ? settings_.idle_exit : settings_.first_job);
}

}  // namespace switchyard::monitor
