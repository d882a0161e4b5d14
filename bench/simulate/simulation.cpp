#include "bench/simulate/simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>

#include "bench/simulate/process.h"
#include "monitor/policy/islands.h"
#include "monitor/scheduling/slice_applier.h"

namespace switchyard::simulate {
namespace {

using monitor::SliceApplier;
using monitor::Slices;
using monitor::SliceWrite;
using std::chrono::microseconds;

// The monitor looks so soon after a ring, but not so soon after the same process's last one. While
// slices are on their way, it looks so soon, too.
constexpr Time kRingTakes = microseconds(50);
constexpr Time kRingPause = microseconds(200);
constexpr Time kWhileApplying = microseconds(500);

Time from_s(double seconds) { return Time(static_cast<Time::rep>(seconds * 1e9)); }

// The page of one process, as far as slices go. Pages of islands' servers come behind those of
// processes, and have another number.
constexpr std::uint64_t kFirstServer = 1u << 20;
constexpr std::uint64_t kIslandBit = std::uint64_t{1} << 63;

struct Page {
  std::uint64_t client = 0;
  Slices wanted;
  Slices written;
  std::uint32_t seq = 0;
  std::uint32_t applied = 0;
  Time last_applies{0};
  Time heard_at{-kRingPause};  // it rang
};

struct Event {
  enum class Kind : std::uint8_t { kArrival, kApplied, kJoin, kKill };
  Time at{0};
  std::uint64_t number = 0;  // events of one instant keep their order
  Kind kind = Kind::kArrival;
  std::size_t who = 0;  // a process, a job for kJoin and kKill, a client for kApplied
  std::uint32_t seq = 0;
  std::uint32_t slice_us = 0;
  bool operator>(const Event& other) const {
    return std::pair(at, number) > std::pair(other.at, other.number);
  }
};

class Simulation {
 public:
  Simulation(const std::vector<JobSpec>& jobs, const Settings& settings);
  Result run();

 private:
  void add(Event event);
  void expect_arrival(std::size_t who);
  void happen(const Event& event);
  void join(std::size_t job);
  void join_island(unsigned island, std::size_t who);
  std::size_t group_of(std::uint64_t client) const;
  Page& page_of(std::uint64_t client);
  void add_servers(monitor::policy::Snapshot& snapshot);
  void kill(std::size_t job);
  void ran_out(std::size_t group);
  void look();
  void fill(monitor::policy::Snapshot& snapshot);
  void write_slices();
  void sample_until(Time to);
  void note_idleness(Time to);
  void count_shorts();
  Time gpu_time(std::size_t job) const;
  void finish();

  const std::vector<JobSpec>& specs_;
  const Settings& settings_;
  Random random_;
  Engine engine_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Page> pages_;
  struct Server {
    Page page;
    std::size_t group = 0;  // the first of its clients'
  };
  std::map<unsigned, Server> servers_;  // by island
  std::vector<Time> left_at_;           // of the jobs
  SliceApplier applier_;
  monitor::policy::State state_;
  monitor::policy::IslandStates islands_;
  monitor::policy::Snapshot snapshot_;
  std::vector<std::size_t> in_snapshot_;
  monitor::policy::Plan plan_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t numbers_ = 0;
  Time now_{0};
  Time end_;
  Time next_look_{0};
  Time next_sample_{0};
  Time idle_since_ = kNever;
  double idle_ns_ = 0;
  Result result_;
};

Simulation::Simulation(const std::vector<JobSpec>& jobs, const Settings& settings)
    : specs_(jobs),
      settings_(settings),
      random_(settings.seed),
      engine_(settings.costs),
      left_at_(jobs.size(), kNever),
      end_(from_s(settings.seconds)) {
  result_.jobs.resize(jobs.size());
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    result_.jobs[job].name = jobs[job].name;
    add({from_s(jobs[job].start_s), 0, Event::Kind::kJoin, job, 0, 0});
    if (jobs[job].stop_s > 0) add({from_s(jobs[job].stop_s), 0, Event::Kind::kKill, job, 0, 0});
  }
  if (settings.unmanaged) next_look_ = kNever;
}

void Simulation::add(Event event) {
  event.number = ++numbers_;
  events_.push(event);
}

void Simulation::expect_arrival(std::size_t who) {
  const Time at = processes_[who]->next();
  if (at != kNever) add({at, 0, Event::Kind::kArrival, who, 0, 0});
}

void Simulation::join(std::size_t job) {
  for (unsigned i = 0; i < specs_[job].processes; ++i) {
    const std::size_t who = processes_.size();
    processes_.push_back(std::make_unique<Process>(specs_[job], job, engine_, random_()));
    pages_.emplace_back().client = who + 1;
    if (specs_[job].island != 0) {
      join_island(specs_[job].island, who);
    } else {
      applier_.join(who + 1, false);
    }
    expect_arrival(who);
  }
}

// A server lives as long as the simulation.
void Simulation::join_island(unsigned island, std::size_t who) {
  const std::size_t group = processes_[who]->group();
  const auto [at, first] = servers_.try_emplace(island);
  Server& server = at->second;
  if (first) {
    server.page.client = kFirstServer + island;
    server.group = group;
    applier_.join(server.page.client, false);
  }
  engine_.join(group, server.group);
}

std::size_t Simulation::group_of(std::uint64_t client) const {
  if (client < kFirstServer) return processes_[client - 1]->group();
  return servers_.at(static_cast<unsigned>(client - kFirstServer)).group;
}

Page& Simulation::page_of(std::uint64_t client) {
  if (client < kFirstServer) return pages_[client - 1];
  return servers_.at(static_cast<unsigned>(client - kFirstServer)).page;
}

void Simulation::kill(std::size_t job) {
  if (left_at_[job] != kNever) return;
  left_at_[job] = now_;
  for (std::size_t who = 0; who < processes_.size(); ++who) {
    if (processes_[who]->job() != job) continue;
    processes_[who]->kill();
    applier_.left(pages_[who].client);
    applier_.died(pages_[who].client);
  }
}

void Simulation::happen(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kJoin:
      join(event.who);
      break;
    case Event::Kind::kKill:
      kill(event.who);
      break;
    case Event::Kind::kArrival:
      if (!processes_[event.who]->alive()) return;
      processes_[event.who]->arrive(now_);
      expect_arrival(event.who);
      break;
    case Event::Kind::kApplied:
      engine_.set_slice(group_of(event.who), event.slice_us);
      page_of(event.who).applied = event.seq;
      count_shorts();
      break;
  }
}

void Simulation::ran_out(std::size_t group) {
  // Groups are made with their processes, so they have the same numbers.
  Process& process = *processes_[group];
  const std::size_t job = process.job();
  const Time before = process.next();
  process.ran_out(now_, result_.jobs[job]);
  if (process.next() != before) expect_arrival(group);
  engine_.settle();
  const double work_s = specs_[job].work_s;
  if (work_s > 0 && monitor::seconds(gpu_time(job)) >= work_s) {
    result_.jobs[job].finished_s = monitor::seconds(now_);
    kill(job);
  }
}

void Simulation::fill(monitor::policy::Snapshot& snapshot) {
  snapshot.rules = settings_.rules;
  snapshot.clients.clear();
  in_snapshot_.clear();
  for (std::size_t who = 0; who < processes_.size(); ++who) {
    const Process& process = *processes_[who];
    if (!process.alive()) continue;
    const Page& page = pages_[who];
    const JobSpec& spec = specs_[process.job()];
    applier_.heard(page.client, page.applied, false);
    monitor::policy::ClientView& view = snapshot.clients.emplace_back();
    in_snapshot_.push_back(who);
    view.client = page.client;
    view.job = process.job() + 1;
    view.priority = spec.priority;
    view.weight = spec.weight;
    view.contexts = view.compute_groups = 1;
    view.sliceable = spec.sliceable;
    if (spec.island != 0) {
      view.island = kIslandBit | spec.island;
      view.compute_groups = 0;
      view.sliceable = false;
    }
    view.slices_in_force = page.wanted == page.written && page.applied == page.seq;
    view.limit = spec.limit;
    if (spec.deadline_s > 0) view.deadline = from_s(spec.start_s + spec.deadline_s);
    view.paused = settings_.paused && settings_.paused(process.job(), now_);
    process.look(view);
    if (settings_.adjust) settings_.adjust(process.job(), now_, result_.jobs[process.job()], view);
  }
  add_servers(snapshot);
}

void Simulation::add_servers(monitor::policy::Snapshot& snapshot) {
  for (auto& [island, server] : servers_) {
    Page& page = server.page;
    applier_.heard(page.client, page.applied, false);
    monitor::policy::ClientView& view = snapshot.clients.emplace_back();
    view.client = view.job = page.client;
    view.island = kIslandBit | island;
    view.serves = true;
    view.compute_groups = 1;
    view.slices_in_force = page.wanted == page.written && page.applied == page.seq;
  }
}

void Simulation::write_slices() {
  for (std::size_t i = 0; i < snapshot_.clients.size(); ++i) {
    Page& page = page_of(snapshot_.clients[i].client);
    if (!snapshot_.clients[i].sliceable) continue;
    page.wanted = plan_.clients[i].slices;
    applier_.want(page.client, page.wanted);
  }
  for (const SliceWrite& write : applier_.step()) {
    Page& page = page_of(write.client);
    page.written = write.slices;
    page.seq = write.seq;
    // A round trip to the firmware, on the process's own service thread.
    const Time takes = microseconds(300 + random_() % 700);
    page.last_applies = std::max(now_ + takes, page.last_applies + microseconds(1));
    const std::uint32_t us = write.slices.compute_us;
    add({page.last_applies, 0, Event::Kind::kApplied, write.client, write.seq,
         us != 0 ? us : abi::kDefaultSliceUs});
  }
}

void Simulation::look() {
  ++result_.looks;
  fill(snapshot_);
  plan_ = monitor::policy::decide_with_islands(snapshot_, now_, state_, islands_);
  for (std::size_t i = 0; i < in_snapshot_.size(); ++i) {
    Process& process = *processes_[in_snapshot_[i]];
    result_.closes += static_cast<unsigned>(!process.closed() && plan_.clients[i].closed != 0);
    process.obey(plan_.clients[i]);
  }
  write_slices();
  next_look_ = now_ + settings_.look_every;
  if (plan_.look_again != Time{0}) next_look_ = std::min(next_look_, plan_.look_again);
  if (applier_.waiting()) next_look_ = std::min(next_look_, now_ + kWhileApplying);
  next_look_ = std::max(next_look_, now_ + microseconds(20));
}

Time Simulation::gpu_time(std::size_t job) const {
  Time sum{0};
  for (const auto& process : processes_) {
    if (process->job() == job) sum += process->ran();
  }
  return sum;
}

void Simulation::count_shorts() {
  unsigned shorts = 0;
  for (const auto& process : processes_) {
    shorts += static_cast<unsigned>(process->alive() && specs_[process->job()].island == 0 &&
                                    engine_.slice_us(process->group()) < abi::kShortBelowUs);
  }
  for (const auto& [island, server] : servers_) {
    shorts += static_cast<unsigned>(engine_.slice_us(server.group) < abi::kShortBelowUs);
  }
  result_.most_short = std::max(result_.most_short, shorts);
}

void Simulation::sample_until(Time to) {
  while (settings_.sample_s > 0 && next_sample_ <= to) {
    for (std::size_t job = 0; job < specs_.size(); ++job) {
      result_.jobs[job].samples_s.push_back(static_cast<float>(monitor::seconds(gpu_time(job))));
      const auto first = std::find_if(processes_.begin(), processes_.end(),
                                      [job](const auto& each) { return each->job() == job; });
      result_.jobs[job].slices_us.push_back(
          first != processes_.end() ? engine_.slice_us((*first)->group()) : 0);
    }
    next_sample_ += from_s(settings_.sample_s);
  }
}

// Called before time goes on: does the engine stand still though somebody may and would use it?
void Simulation::note_idleness(Time to) {
  const bool unused =
      engine_.idle() &&
      std::any_of(processes_.begin(), processes_.end(), [this](const auto& process) {
        return process->wants() && specs_[process->job()].limit == 0 &&
               !(settings_.paused && settings_.paused(process->job(), now_));
      });
  if (!unused) {
    idle_since_ = kNever;
    return;
  }
  if (idle_since_ == kNever) idle_since_ = now_;
  idle_ns_ += static_cast<double>((to - now_).count());
  result_.longest_idle_ms =
      std::max(result_.longest_idle_ms, 1e3 * monitor::seconds(to - idle_since_));
}

Result Simulation::run() {
  while (now_ < end_) {
    Time to = std::min({end_, engine_.next(), next_look_});
    if (!events_.empty()) to = std::min(to, events_.top().at);
    if (settings_.sample_s > 0) to = std::min(to, next_sample_);
    to = std::max(to, now_);
    note_idleness(to);
    const auto group = engine_.run_until(to);
    now_ = engine_.now();
    sample_until(now_);
    if (group) {
      ran_out(*group);
    } else if (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      happen(event);
    } else if (next_look_ <= now_) {
      look();
    }
    if (settings_.unmanaged) continue;
    for (std::size_t who = 0; who < processes_.size(); ++who) {
      if (!processes_[who]->take_ring()) continue;
      Time& heard_at = pages_[who].heard_at;
      heard_at = std::max({heard_at, now_ + kRingTakes, heard_at + kRingPause});
      next_look_ = std::min(next_look_, heard_at);
    }
  }
  finish();
  return std::move(result_);
}

void Simulation::finish() {
  result_.seconds = settings_.seconds;
  double ran = 0;
  for (std::size_t job = 0; job < specs_.size(); ++job) {
    JobResult& out = result_.jobs[job];
    out.gpu_s = monitor::seconds(gpu_time(job));
    ran += out.gpu_s;
    const double there = monitor::seconds(std::min(left_at_[job], end_)) - specs_[job].start_s;
    out.share = there > 0 ? out.gpu_s / there : 0;
    const double due = specs_[job].start_s + specs_[job].deadline_s;
    const double ended = out.finished_s > 0 ? out.finished_s : settings_.seconds;
    out.missed = specs_[job].deadline_s > 0 && ended > due;
  }
  result_.busy = ran / settings_.seconds;
  result_.switching = monitor::seconds(engine_.lost()) / settings_.seconds;
  result_.idle_with_work = idle_ns_ * 1e-9 / settings_.seconds;
}

}  // namespace

Result simulate(const std::vector<JobSpec>& jobs, const Settings& settings) {
  return Simulation(jobs, settings).run();
}

}  // namespace switchyard::simulate
