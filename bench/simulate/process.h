// One process of a job: what it launches, when, and how it obeys its gate. Its stream is a queue of
// bursts; a closed gate stops it at the next wait, and its CPU before the next launch.
//
// Threading: one simulation, one thread.
#pragma once

#include <deque>
#include <random>
#include <utility>

#include "bench/simulate/engine.h"
#include "bench/simulate/job.h"
#include "monitor/policy/policy.h"

namespace switchyard::simulate {

using Random = std::mt19937_64;

class Process {
 public:
  Process(const JobSpec& spec, std::size_t job, Engine& engine, std::uint64_t seed);

  // What the monitor sees and says.
  void look(monitor::policy::ClientView& view) const;
  void obey(const monitor::policy::ClientPlan& plan);

  // The next burst arrives then, or the pattern changes; kNever when only its GPU work can matter.
  Time next() const { return next_; }
  void arrive(Time now);
  // The engine ran all that it was offered.
  void ran_out(Time now, JobResult& result);
  void kill();

  // True once after it launched with the wish to be told in the page.
  bool take_ring() { return std::exchange(rings_, false); }
  bool wants() const { return alive_ && (left_ > Time{0} || !waiting_.empty()); }
  bool closed() const { return closed_; }
  bool alive() const { return alive_; }
  std::size_t job() const { return job_; }
  std::size_t group() const { return group_; }
  Time ran() const { return engine_.ran(group_); }

 private:
  void launch();
  void catch_up();  // with what the engine ran of the offer
  void offer();
  Time random_span(double mean_s);
  Time longest_batch() const;
  void plan_arrival(Time now);
  void choose_phase(Time now);
  Time random_step();
  void launch_one(Time now);  // of an eager server's step
  void begin_burst(Time now);
  void end_burst(Time now, Time waits_since);
  void end_step(Time now, JobResult& result);
  void end_wait(Time now, JobResult& result);
  bool in_token() const { return waits_ > spec_.tail && spec_.tokens > 0; }

  const JobSpec& spec_;
  std::size_t job_;
  Engine& engine_;
  std::size_t group_;
  Random random_;
  Phase phase_;                // of an eager server
  std::deque<Time> waiting_;   // arrived, not launched
  Time arrived_{0};            // the launched burst
  Time launched_at_{0};        // when it was, or its first kernel
  unsigned launched_ = 0;      // kernels of an eager server's burst so far
  unsigned burst_ = 0;         // kernels of that burst
  unsigned waits_ = 0;         // of its step so far
  Time waits_since_ = kNever;  // its CPU has launched them all
  monitor::policy::Bursts bursts_;
  Time left_{0};          // of it
  Time offered_{0};       // of that to the engine
  Time passes_ = kNever;  // may still run though the gate is closed
  Time next_ = kNever;
  Time on_until_{0};
  std::uint64_t launches_ = 0;
  std::uint64_t stops_ = 0;
  std::uint32_t batch_us_ = 1000;
  bool armed_ = false;
  bool closed_ = false;
  bool wake_ = false;
  bool tells_waits_ = false;
  bool foreseen_ = false;         // its next wait is
  std::uint32_t ring_after_ = 0;  // launches
  bool ring_due_ = false;         // it has not rung for that
  bool rings_ = false;
  bool alive_ = true;
};

}  // namespace switchyard::simulate
