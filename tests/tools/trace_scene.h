// A recording that a test writes event by event.
//
// Threading: a plain value.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "tools/trace/spans.h"

namespace switchyard::tools::trace {

inline constexpr std::int64_t kMs = 1'000'000;
inline constexpr std::int64_t kBegin = 5'000'000 * kMs;

inline const Code kRuns{State::kRunning, ""};
inline const Code kIdles{State::kIdle, ""};

// Times are milliseconds since the beginning. Jobs have one process each, on the first GPU.
struct Scene {
  explicit Scene(std::int64_t milliseconds, unsigned gpus = 1) {
    recording.from = kBegin;
    recording.to = kBegin + milliseconds * kMs;
    recording.unix_seconds = 1.7e9;
    recording.people[0] = "root";
    for (unsigned i = 0; i < gpus; ++i) {
      recording.gpus.push_back({i, "Fake", "GPU-" + std::to_string(i), 1u << 30});
    }
  }

  // A job that lives and is in this state now; its gate is closed for these reasons now.
  JobKey job(const std::string& name, const Code& now = kRuns, std::uint32_t closed = 0) {
    const JobKey key = recording.jobs.size() + 1;
    Job job{.id = "id-" + name, .name = name, .user = "anna", .lives = true, .now = now};
    job.gpus[1].now = now;
    job.gates.push_back({1, pid(key), closed});
    recording.jobs[key] = job;
    return key;
  }
  void gate(double at, JobKey job, std::uint64_t closed, std::uint64_t before, unsigned gpu = 1) {
    add(at, {.kind = Kind::kGate,
             .job = job,
             .gpu = gpu,
             .pid = pid(job),
             .value = before << 32 | closed});
  }
  // The turn goes from one job to the other.
  void turn(double at, JobKey from, JobKey to) {
    gate(at, from, 2, 0);
    gate(at, to, 0, 2);
  }
  void state(double at, JobKey job, const Code& before, const Code& after, JobKey by = 0,
             std::uint64_t value = 0, unsigned gpu = 0) {
    add(at, {.kind = Kind::kStatus,
             .job = job,
             .by = by,
             .gpu = gpu,
             .value = value,
             .before = before,
             .after = after});
  }
  void happens(double at, JobKey job, Kind kind, std::uint32_t person = Event::kNobody) {
    add(at, {.kind = kind, .job = job, .uid = person});
  }
  void add(double at, Event event) {
    event.at = kBegin + static_cast<std::int64_t>(at * kMs);
    recording.events.push_back(std::move(event));
  }
  void sample(double at, JobKey job, double share, std::uint64_t bytes, unsigned gpu = 1) {
    recording.samples.push_back({.at = kBegin + static_cast<std::int64_t>(at * kMs),
                                 .job = job,
                                 .gpu = gpu,
                                 .memory_bytes = bytes,
                                 .share = share,
                                 .at_work = 1});
  }
  static std::int64_t pid(JobKey job) { return 100 + static_cast<std::int64_t>(job); }

  Timeline timeline() {
    std::stable_sort(recording.events.begin(), recording.events.end(),
                     [](const Event& a, const Event& b) { return a.at < b.at; });
    return timeline_of(recording);
  }

  Recording recording;
};

// Eight jobs that take turns of a millisecond for a minute, each sampled five times a second.
inline Scene busy_minute() {
  Scene out(60'000);
  for (int i = 0; i < 8; ++i) out.job("job-" + std::to_string(i), kRuns, i == 0 ? 0 : 2);
  for (int at = 1; at < 60'000; ++at) {
    out.turn(at, static_cast<JobKey>((at - 1) % 8 + 1), static_cast<JobKey>(at % 8 + 1));
  }
  for (int at = 0; at < 60'000; at += 200) {
    out.sample(at, 0, -1, 1u << 30);
    for (JobKey job = 1; job <= 8; ++job) {
      out.sample(at, job, 0.125 + at * 1e-6, (1u << 20) + static_cast<std::uint64_t>(at));
    }
  }
  return out;
}

}  // namespace switchyard::tools::trace
