// What each job did on each GPU, as spans of time that follow each other without gaps.
//
// Concept. A recording has changes of gates, which are exact, and states, which the monitor sees
// five times a second. Both are told here as one sequence, and the latest word holds:
//
//     came last                                   span of the job on the GPU
//     a state that gates do not decide            that state
//     all gates of the job closed, and it ran     waiting: turn; held: limit, guard; paused
//     a gate opened, and the job waited for it    running
//     a state that contradicts the gates          what the gates say
//     its memory leaves, has left, returns        moving, swapped, moving
//
// A job that a state told to be idle stays so until a state tells of work: a gate can't. A job
// waits for the turn of the job that runs next. Where no gate decides, several jobs run at once.
// Slices of the driver then divide the GPU, and nobody sees which of them has it at an instant.
//
// Law: the spans of one job on one GPU never overlap. They add up to the time that was recorded.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tools/trace/recording.h"

namespace switchyard::tools::trace {

struct Span {
  std::int64_t from = 0, to = 0;  // ns
  Code code = {};
  JobKey by = 0;                          // the job that causes it
  std::uint32_t person = Event::kNobody;  // or the user who asked for it
  std::uint64_t value = 0;  // as in changes.h of the monitor: bytes, millionths, a GPU
};

// One job on one GPU.
struct Lane {
  JobKey job = 0;
  std::size_t gpu = 0;
  std::vector<Span> spans = {};
  std::vector<Sample> samples = {};
};

// The users of a GPU, as far as they are seen: one job, or several that share it.
struct Users {
  std::int64_t from = 0, to = 0;
  std::vector<std::size_t> lanes = {};
};

// From the end of a span to the beginning of another that waited for it.
struct Arrow {
  std::size_t gpu = 0;
  std::size_t from_lane = 0, from_span = 0;
  std::size_t to_lane = 0, to_span = 0;
};

struct Timeline {
  std::int64_t from = 0, to = 0;
  double unix_seconds = 0;  // at `to`
  std::vector<Gpu> gpus = {};
  std::map<JobKey, Job> jobs = {};
  std::map<std::uint32_t, std::string> people = {};
  std::vector<Lane> lanes = {};                   // by GPU, then in the order of the jobs
  std::vector<std::vector<Users>> users = {};     // by GPU
  std::vector<std::vector<Sample>> samples = {};  // by GPU, of the GPU itself
  std::vector<Arrow> arrows = {};
};

Timeline timeline_of(const Recording& recording);

// "waiting: turn of train", as a person reads it.
std::string label_of(const Timeline& timeline, const Span& span);
// "train", or "serve + train" where both run.
std::string label_of(const Timeline& timeline, const Users& users);

}  // namespace switchyard::tools::trace
