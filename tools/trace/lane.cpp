#include "tools/trace/lane.h"

#include <algorithm>
#include <utility>

namespace switchyard::tools::trace {
namespace {

// Reasons of a closed gate (switchyard/abi.h: kClosed*).
constexpr std::uint32_t kByPause = 1, kByTurn = 2, kByLimit = 4, kByGuard = 8;

bool is_of_gates(const Code& code) {
  switch (code.state) {
    case State::kRunning:
    case State::kIdle:
      return true;
    case State::kHeld:
      return code.reason != "cut";
    case State::kWaiting:
      return code.reason == "turn";
    default:
      return false;
  }
}

bool held_by_gates(const Code& code) {
  return is_of_gates(code) && code.state != State::kRunning && code.state != State::kIdle &&
         code.reason != "turn ends";
}

// As the monitor tells it where there are several.
Code code_of_gates(std::uint32_t closed) {
  if ((closed & kByPause) != 0) return {State::kPaused, "pause"};
  if ((closed & kByGuard) != 0) return {State::kHeld, "guard"};
  if ((closed & kByLimit) != 0) return {State::kHeld, "limit"};
  return {State::kWaiting, "turn"};
}

bool is_of_swap(const Code& code) {
  const bool moves = code.reason == "move" || code.reason == "move prepares";
  return code.state == State::kSwapped || (code.state == State::kMoving && !moves);
}

}  // namespace

LaneTeller::LaneTeller(const Recording& recording, JobKey job, std::size_t gpu,
                       const Events& events)
    : job_(job), gpu_(gpu), events_(events), to_(recording.to) {
  now_.from = recording.from;
  const auto found = recording.jobs.find(job_);
  const Job known = found != recording.jobs.end() ? found->second : Job{};
  begin_as_now(known);
  begin_as_first_told(known);
  if (is_of_gates(of_job_.code)) worked_ = of_job_.code;
  now_.code = as_gates_say(own_ ? own_->code : of_job_.code);
  now_.by = own_ ? own_->by : of_job_.by;
}

void LaneTeller::begin_as_now(const Job& job) {
  of_job_.code = job.now;
  of_job_.by = job.by;
  const auto on = job.gpus.find(static_cast<unsigned>(gpu_ + 1));
  const bool has_rows = job.gpus.size() > 1 ||
                        (job.gpus.size() == 1 && on != job.gpus.end() && on->second.now != job.now);
  if (on != job.gpus.end() && has_rows) {
    own_ = Span{};
    own_->code = on->second.now;
    own_->by = on->second.by;
  }
  for (const Job::Gate& gate : job.gates) {
    if (gate.gpu == gpu_ + 1) gates_[gate.pid] = gate.closed;
  }
  used_ = !gates_.empty();
}

// Where there is an event, what held before the first of them is what that one says.
void LaneTeller::begin_as_first_told(const Job& job) {
  const auto living = gates_;
  std::map<std::int64_t, bool> told_gates;
  bool told_job = false, told_own = false;
  for (const Event* each : events_) {
    const Event& event = *each;
    if (!mine(event)) continue;
    used_ = used_ || event.gpu != 0;
    if (event.kind == Kind::kGate) {
      if (!std::exchange(told_gates[event.pid], true)) {
        gates_[event.pid] = static_cast<std::uint32_t>(event.value >> 32);
      }
      if (job.lives && living.count(event.pid) == 0) gone_[event.pid] = event.at;
    } else if (event.kind == Kind::kStatus && event.gpu == 0) {
      if (!std::exchange(told_job, true)) of_job_ = {.code = event.before};
    } else if (event.kind == Kind::kStatus && !std::exchange(told_own, true)) {
      own_.reset();
      if (event.before.state != State::kUnknown) own_ = Span{.code = event.before};
    }
  }
}

void LaneTeller::tell(const Event& event) {
  if (!mine(event) || ended_ || event.at > to_) return;
  switch (event.kind) {
    case Kind::kJobBegins:
      spans_.clear();
      now_.from = std::max(now_.from, event.at);
      break;
    case Kind::kJobEnds:
      ended_ = true;
      to_ = event.at;
      break;
    case Kind::kStatus:
      tell_status(event);
      break;
    case Kind::kGate:
      tell_gate(event);
      break;
    default:
      tell_memory(event);
  }
}

void LaneTeller::tell_status(const Event& event) {
  const Span status{.from = event.at,
                    .code = event.after,
                    .by = event.by,
                    .person = event.uid,
                    .value = event.value};
  if (event.gpu == 0) {
    of_job_ = status;
    if (!own_) seen(status);
  } else if (event.after.state == State::kUnknown) {
    own_.reset();
    Span back = of_job_;
    back.from = event.at;
    seen(back);
  } else {
    own_ = status;
    seen(status);
  }
}

void LaneTeller::seen(const Span& status) {
  if (is_of_gates(status.code)) worked_ = status.code;
  Span next = status;
  next.code = as_gates_say(status.code);
  if (next.code.state == State::kPaused && next.person == Event::kNobody) {
    next.person = pause_.person;
  }
  set(status.from, next);
}

void LaneTeller::tell_gate(const Event& event) {
  used_ = true;
  const std::uint32_t before = closed();
  gates_[event.pid] = static_cast<std::uint32_t>(event.value);
  const auto gone = gone_.find(event.pid);
  if (gone != gone_.end() && gone->second == event.at && gates_.size() > 1) {
    gates_.erase(event.pid);
  }
  const std::uint32_t after = closed();
  if (after == before || !(is_of_gates(now_.code) || now_.code.state == State::kPaused)) return;
  if ((after & kByPause) != 0) {
    set(event.at, {.code = code_of_gates(after), .person = pause_.person});
  } else if (now_.code.state == State::kPaused) {
    set(event.at, {.code = as_gates_say(worked_)});
  } else if (after != 0 && now_.code.state != State::kIdle) {
    set(event.at, {.code = code_of_gates(after)});
  } else if (after == 0 && held_by_gates(now_.code)) {
    set(event.at, {.code = {State::kRunning, ""}});
  }
}

void LaneTeller::tell_memory(const Event& event) {
  if (event.kind == Kind::kPaused) {
    pause_ = {.person = event.uid};
    if (is_of_gates(now_.code))
      set(event.at, {.code = {State::kPaused, "pause"}, .person = event.uid});
    return;
  }
  if (event.kind == Kind::kResumed) {
    if (now_.code.state == State::kPaused) set(event.at, {.code = as_gates_say(worked_)});
    return;
  }
  const bool waits_for_room = now_.code.state == State::kWaiting;
  if (!is_of_gates(now_.code) && !is_of_swap(now_.code) && !waits_for_room) return;
  // The reason comes with the next state.
  if (event.kind == Kind::kLeaves) set(event.at, {.code = {State::kMoving, ""}});
  if (event.kind == Kind::kLeft) {
    set(event.at, {.code = {State::kSwapped, is_of_swap(now_.code) ? now_.code.reason : ""}});
  }
  if (event.kind == Kind::kReturns) set(event.at, {.code = {State::kMoving, "returns"}});
  if (event.kind == Kind::kIsBack) set(event.at, {.code = as_gates_say(worked_)});
}

std::uint32_t LaneTeller::closed() const {
  std::uint32_t all = 0;
  for (const auto& [pid, closed] : gates_) {
    if (closed == 0) return 0;
    all |= closed;
  }
  return all;
}

Code LaneTeller::as_gates_say(const Code& code) const {
  if (!is_of_gates(code)) return code;
  const std::uint32_t bits = closed();
  if ((bits & kByPause) != 0) return code_of_gates(bits);
  if (bits == 0 && held_by_gates(code)) return {State::kRunning, ""};
  if (bits != 0 && code.state == State::kRunning) return code_of_gates(bits);
  return code;
}

void LaneTeller::set(std::int64_t at, Span next) {
  at = std::max(at, now_.from);
  const bool tells_reason =
      now_.code.state == next.code.state && now_.code.reason.empty() &&
      (now_.code.state == State::kMoving || now_.code.state == State::kSwapped);
  if (now_.code == next.code || tells_reason) {
    now_.code = next.code;
    if (next.by != 0) now_.by = next.by;
    if (next.person != Event::kNobody) now_.person = next.person;
    if (next.value != 0) now_.value = next.value;
    return;
  }
  now_.to = at;
  if (now_.to > now_.from) spans_.push_back(now_);
  next.from = at;
  now_ = std::move(next);
}

Lane LaneTeller::lane() && {
  for (const Event* event : events_) tell(*event);
  now_.to = std::max(to_, now_.from);
  if (now_.to > now_.from) spans_.push_back(now_);
  return {.job = job_, .gpu = gpu_, .spans = std::move(spans_)};
}

}  // namespace switchyard::tools::trace
