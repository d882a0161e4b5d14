// The part that each has of a GPU, where several share it by slices alone.
//
// Concept. Equal jobs need no gate. So their launches get no numbers, and nobody tells when their
// work is done. NVML's figures of several processes have errors of tens of percent. So now and then
// there is a *window* in which all that work are watched. From the slices of those that had work
// follows what each had of it (account.cpp). Between the windows each is told to have as much.
//
//     settles   until each has told of work, at most half a second. What was launched before has no
//               number, and a job may launch more only in its own slice
//     counts    200 ms, 5 ms between two looks
//     the next  after 19 times as long; after four times as long, where others are at work
//
// A number costs a launch-bound job a few percent, so the windows are a twentieth of the time. A
// job of the high class has none for their sake: its latency comes first, and gates know it anyway.
#include <algorithm>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;

constexpr Time kCounts = milliseconds(200);
constexpr Time kSettles = milliseconds(500);
constexpr Time kStep = milliseconds(5);
constexpr int kUsuallyApart = 19, kAtLeastApart = 4;  // times the length of the last
constexpr unsigned kRemembered = 5;                   // windows

bool may_be_asked(const Rider& rider) {
  return !rider.high && rider.view->gateable && !rider.plan->watch;
}

// Several jobs work, and of one that does nobody tells.
bool is_wanted(const Tick& tick) {
  if (!tick.rules.slices || !tick.rules.gates) return false;
  const Rider* unknown = nullptr;
  for (const Rider& rider : tick.riders) {
    if (rider.active && may_be_asked(rider)) unknown = &rider;
  }
  return unknown != nullptr && any_rider(tick, [&](const Rider& rider) {
           return rider.active && rider.job() != unknown->job();
         });
}

void forget_samples(const Tick& tick) {
  for (const Rider& rider : tick.riders) {
    rider.state->only_sampled = false;
    rider.state->sampled = -1;
  }
  tick.state.sampling = {};
}

// A sum that differs where the sets do, as good as surely.
std::uint64_t mark_of_active(const Tick& tick) {
  std::uint64_t sum = 1;
  for (const Rider& rider : tick.riders) {
    if (rider.active) sum += (rider.view->client + 1) * 0x9e3779b97f4a7c15;
  }
  return sum;
}

void begin_window(const Tick& tick) {
  Sampling& sampling = tick.state.sampling;
  sampling.on = true;
  sampling.began = tick.now;
  sampling.settled = Time{0};
  sampling.span_ns = 0;
  for (const Rider& rider : tick.riders) {
    rider.state->heard = false;
    rider.state->window_had_ns = rider.state->window_lost_ns = 0;
  }
}

void hear(const Tick& tick) {
  Sampling& sampling = tick.state.sampling;
  bool all = true;
  for (const Rider& rider : tick.riders) {
    if (!rider.active) continue;
    ClientState& state = *rider.state;
    state.heard = state.heard || (state.watched && (state.progressed || state.busy));
    all = all && state.heard;
  }
  if (sampling.settled != Time{0}) return;
  if (all || tick.now - sampling.began >= kSettles) sampling.settled = tick.now;
}

void end_window(const Tick& tick) {
  Sampling& sampling = tick.state.sampling;
  sampling.on = false;
  sampling.ended = tick.now;
  sampling.due = tick.now + kUsuallyApart * (sampling.ended - sampling.began);
  if (sampling.span_ns <= 0) return;
  sampling.windows = std::min(sampling.windows + 1, kRemembered);
  for (const Rider& rider : tick.riders) {
    ClientState& state = *rider.state;
    const double gain = state.sampled < 0 ? 1 : 1.0 / sampling.windows;
    const auto follow = [&](double& part, double in_window) {
      part += gain * (in_window / sampling.span_ns - part);
    };
    state.sampled = std::max(state.sampled, 0.0);
    follow(state.sampled, state.window_had_ns);
    follow(state.sampled_lost, state.window_lost_ns);
  }
}

}  // namespace

void sample(Tick& tick) {
  Sampling& sampling = tick.state.sampling;
  if (!is_wanted(tick)) {
    forget_samples(tick);
    return;
  }
  if (const std::uint64_t who = mark_of_active(tick); who != sampling.who) {
    sampling.who = who;
    sampling.windows = 0;
    const Time length = sampling.ended - sampling.began;
    sampling.due = std::min(sampling.due, sampling.ended + kAtLeastApart * length);
    if (sampling.on) begin_window(tick);
  }
  if (!sampling.on && tick.now >= sampling.due) begin_window(tick);
  if (sampling.on) hear(tick);
  const bool counts = sampling.on && sampling.settled != Time{0};
  if (counts && tick.now - sampling.settled >= kCounts) end_window(tick);
  for (const Rider& rider : tick.riders) {
    rider.state->only_sampled = sampling.on && rider.active && may_be_asked(rider);
    rider.plan->watch = rider.plan->watch || rider.state->only_sampled;
  }
  if (sampling.on) {
    tick.again_in(kStep);
  } else {
    tick.again_at(sampling.due);
  }
}

}  // namespace switchyard::monitor::policy
