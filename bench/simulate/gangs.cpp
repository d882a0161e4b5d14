#include "bench/simulate/gangs.h"

#include <algorithm>
#include <random>

namespace switchyard::simulate {
namespace {

namespace policy = monitor::policy;
using std::chrono::microseconds;

constexpr Time kStep = microseconds(250);
// A holder's pause does not end its turn before.
constexpr Time kPause = std::chrono::milliseconds(12);

Time from_ms(double ms) { return Time(static_cast<Time::rep>(ms * 1e6)); }

struct Rank {
  std::size_t gpu = 0;
  Time works_until{0};  // its CPU
  Time left{0};         // of its kernel
  bool in_collective = false;
  std::uint64_t launched = 0;  // steps
  bool closed = false;

  bool has_work() const { return left > Time{0} || in_collective; }
  // On the engine now.
  bool runs() const { return in_collective || (left > Time{0} && !closed); }
};

struct Job {
  const GangSpec* spec = nullptr;
  std::vector<Rank> ranks;
  std::uint64_t target = 0;  // of the cut
  bool stopping = false;
  Time ended_at{0};  // the last step
  GangResult result;

  bool is_gang() const { return ranks.size() > 1; }
  bool at_cut() const {
    return stopping && std::all_of(ranks.begin(), ranks.end(),
                                   [this](const Rank& rank) { return rank.launched >= target; });
  }
};

class Gangs {
 public:
  Gangs(const std::vector<GangSpec>& specs, const GangSettings& settings)
      : settings_(settings), random_(settings.seed), gpus_(settings.gpus) {
    for (const GangSpec& spec : specs) {
      Job& job = jobs_.emplace_back();
      job.spec = &spec;
      job.ended_at = from_ms(1e3 * spec.start_s);
      for (const std::size_t gpu : spec.gpus) {
        Rank& rank = job.ranks.emplace_back();
        rank.gpu = gpu;
        rank.works_until = job.ended_at;
      }
    }
  }

  GangsResult run() {
    const Time end = from_ms(1e3 * settings_.seconds);
    for (now_ = kStep; now_ < end; now_ += kStep) {
      for (Job& job : jobs_) launch(job);
      look();
      work();
      for (Job& job : jobs_) end_step(job);
    }
    for (Job& job : jobs_) {
      note_wait(job);
      result_.jobs.push_back(job.result);
    }
    return result_;
  }

 private:
  struct Gpu {
    policy::State state;
    Time due{0};
    bool rings = false;
    unsigned running = 0;
    Time ran_at{0};
  };

  bool wants(const Rank& rank) const { return rank.has_work() || now_ >= rank.works_until; }

  void launch(Job& job) {
    for (Rank& rank : job.ranks) {
      if (rank.has_work() || now_ < rank.works_until) continue;
      gpus_[rank.gpu].rings = true;
      const bool held = job.stopping && rank.launched >= job.target;
      if (rank.closed || held) continue;
      rank.left = from_ms(job.spec->gpu_ms);
      ++rank.launched;
    }
  }

  policy::ClientView view_of(std::size_t job, Rank& rank, std::size_t gpu) {
    const GangSpec& spec = *jobs_[job].spec;
    policy::ClientView view;
    view.client = 1000 * job + gpu + 1;
    view.job = job + 1;
    view.priority = spec.priority;
    view.contexts = view.compute_groups = 1;
    view.work = rank.launched;
    view.busy = rank.has_work();
    view.numbered = true;
    view.held = rank.closed && !rank.has_work() && now_ >= rank.works_until;
    view.progress = rank.launched;
    view.limit = spec.limit;
    if (settings_.together && jobs_[job].is_gang()) {
      view.gang = view.stops = true;
      view.stopped = jobs_[job].at_cut();
    }
    view.grant = grants_.of(view.job, gpu);
    return view;
  }

  void look_at(std::size_t gpu) {
    policy::Snapshot snapshot;
    std::vector<Rank*> ranks;
    snapshot.rules = settings_.rules;
    for (std::size_t job = 0; job < jobs_.size(); ++job) {
      if (now_ < from_ms(1e3 * jobs_[job].spec->start_s)) continue;
      for (Rank& rank : jobs_[job].ranks) {
        if (rank.gpu != gpu) continue;
        snapshot.clients.push_back(view_of(job, rank, gpu));
        ranks.push_back(&rank);
      }
    }
    const policy::Plan plan = policy::decide(snapshot, now_, gpus_[gpu].state);
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->closed = plan.clients[i].closed != 0;
    grants_.claims[gpu] = plan.claims;
    gpus_[gpu].due = plan.look_again;
    gpus_[gpu].rings = false;
  }

  void look() {
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      const Time due = gpus_[gpu].due;
      if (gpus_[gpu].rings || (due != Time{0} && due <= now_)) look_at(gpu);
    }
    for (const auto& [key, gpu] : policy::decide_grants(grants_, settings_.rules.minimum, now_)) {
      for (const Rank& rank : jobs_[key - 1].ranks) look_at(rank.gpu);
    }
    for (std::size_t job = 0; job < jobs_.size(); ++job) follow_cut(job);
  }

  void follow_cut(std::size_t at) {
    Job& job = jobs_[at];
    const bool stops = grants_.of(at + 1, policy::Grants::kAllGpus) == policy::Grant::kStopping;
    if (stops && !job.stopping) {
      job.target = 0;
      for (const Rank& rank : job.ranks) job.target = std::max(job.target, rank.launched);
    }
    job.stopping = stops;
  }

  // The engine of each GPU is shared by those that run there.
  void work() {
    for (Gpu& gpu : gpus_) gpu.running = 0;
    for (const Job& job : jobs_) {
      for (const Rank& rank : job.ranks) gpus_[rank.gpu].running += rank.runs() ? 1 : 0;
    }
    for (Gpu& gpu : gpus_) gpu.ran_at = gpu.running != 0 ? now_ : gpu.ran_at;
    note_idleness();
    for (Job& job : jobs_) {
      for (Rank& rank : job.ranks) work(job, rank);
      note_held(job);
    }
  }

  void work(Job& job, Rank& rank) {
    if (!rank.runs()) return;
    const Time part = kStep / gpus_[rank.gpu].running;
    result_.busy_s += monitor::seconds(part);
    if (rank.in_collective) return;
    rank.left -= part;
    job.result.gpu_s += monitor::seconds(part) / static_cast<double>(job.ranks.size());
    rank.in_collective = rank.left <= Time{0} && job.is_gang();
  }

  void note_idleness() {
    for (const Job& job : jobs_) {
      if (job.spec->limit != 0 || now_ < from_ms(1e3 * job.spec->start_s)) continue;
      const auto free = [this](const Rank& rank) { return now_ - gpus_[rank.gpu].ran_at > kPause; };
      const auto ready = [this](const Rank& rank) { return wants(rank); };
      if (!std::all_of(job.ranks.begin(), job.ranks.end(), free)) continue;
      if (!std::any_of(job.ranks.begin(), job.ranks.end(), ready)) continue;
      result_.idle_though_fits_s += monitor::seconds(kStep) * static_cast<double>(job.ranks.size());
      return;
    }
  }

  void note_held(Job& job) {
    const bool occupies = std::any_of(job.ranks.begin(), job.ranks.end(),
                                      [](const Rank& rank) { return rank.in_collective; });
    const bool held = std::any_of(job.ranks.begin(), job.ranks.end(), [this](const Rank& rank) {
      return rank.closed && !rank.in_collective && wants(rank);
    });
    if (occupies && held) job.result.held_for_nothing_s += monitor::seconds(kStep);
  }

  void note_wait(Job& job) {
    const double waited = monitor::seconds(now_ - job.ended_at);
    job.result.longest_wait_s = std::max(job.result.longest_wait_s, waited);
  }

  void end_step(Job& job) {
    const std::uint64_t launched = job.ranks[0].launched;
    const bool done = std::all_of(job.ranks.begin(), job.ranks.end(), [&](const Rank& rank) {
      return rank.launched == launched && rank.left <= Time{0};
    });
    if (!done || launched == job.result.steps) return;
    job.result.steps = launched;
    note_wait(job);
    job.ended_at = now_;
    for (Rank& rank : job.ranks) {
      rank.in_collective = false;
      rank.works_until = now_ + from_ms(job.spec->cpu_ms * 2 * share_(random_));
    }
  }

  const GangSettings& settings_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> share_{0, 1};
  std::vector<Gpu> gpus_;
  std::vector<Job> jobs_;
  policy::Grants grants_;
  Time now_{0};
  GangsResult result_;
};

}  // namespace

GangsResult simulate_gangs(const std::vector<GangSpec>& jobs, const GangSettings& settings) {
  return Gangs(jobs, settings).run();
}

}  // namespace switchyard::simulate
