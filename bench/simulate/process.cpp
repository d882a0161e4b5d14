#include "bench/simulate/process.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace switchyard::simulate {
namespace {

constexpr Time kKernel = std::chrono::microseconds(100);
// The queue of an unarmed process, which can't be stopped.
constexpr Time kQueued = std::chrono::milliseconds(20);
// Between two waits of the tail of a step.
constexpr unsigned kTailLaunches = 6;

Time from_ms(double ms) { return Time(static_cast<Time::rep>(ms * 1e6)); }

}  // namespace

Process::Process(const JobSpec& spec, std::size_t job, Engine& engine, std::uint64_t seed)
    : spec_(spec),
      job_(job),
      engine_(engine),
      group_(engine.add_group(abi::kDefaultSliceUs)),
      random_(seed),
      phase_{0, spec.cpu_ms, spec.gpu_ms, spec.launches} {
  const Time start = engine.now();
  if (spec_.pattern == Pattern::kTraining || spec_.pattern == Pattern::kEager) {
    next_ = start;
  } else {
    on_until_ = spec_.pattern == Pattern::kBursty ? start + random_span(spec_.on_s) : kNever;
    plan_arrival(start);
  }
}

Time Process::random_span(double mean_s) {
  return from_ms(1e3 * std::exponential_distribution<double>(1 / mean_s)(random_));
}

void Process::plan_arrival(Time now) {
  next_ = now + random_span(1 / spec_.rate);
  while (next_ > on_until_) {
    const Time begins = on_until_ + random_span(spec_.off_s);
    on_until_ = begins + random_span(spec_.on_s);
    next_ = begins + random_span(1 / spec_.rate);
  }
}

// Numbers come between batches, and a batch is at least a kernel.
Time Process::longest_batch() const {
  return std::max<Time>(std::chrono::microseconds(batch_us_), from_ms(spec_.kernel_ms));
}

void Process::look(monitor::policy::ClientView& view) const {
  const Time batch = longest_batch();
  view.work = launches_;
  // The others' launches are whole bursts, of many kernels.
  if (spec_.pattern != Pattern::kEager) view.work += static_cast<std::uint64_t>(ran() / kKernel);
  view.progress = launches_ + stops_ + static_cast<std::uint64_t>(ran() / batch);
  // Work that is queued behind the closed gate is submitted, too.
  view.numbered = true;
  view.busy = left_ > Time{0};
  if (spec_.timed) view.bursts = bursts_;
  view.bursts.launched = launched_;
  view.bursts.waiting = waits_since_ != kNever;
  view.held = closed_ && left_ <= Time{0} && !waiting_.empty();
}

void Process::obey(const monitor::policy::ClientPlan& plan) {
  armed_ = plan.armed;
  wake_ = plan.wake;
  tells_waits_ = plan.tell_waits;
  foreseen_ = plan.wait_foreseen;
  if (std::exchange(ring_after_, plan.ring_after) != plan.ring_after) ring_due_ = true;
  batch_us_ = plan.spacing_us != 0 ? plan.spacing_us : 1000;
  if (const bool close = plan.closed != 0; close != closed_) {
    catch_up();
    closed_ = close;
    const Time most = armed_ ? longest_batch() : kQueued;
    const auto part = std::uniform_real_distribution<double>(0, 1)(random_);
    passes_ =
        close ? Time(static_cast<Time::rep>(part * static_cast<double>(most.count()))) : kNever;
    offer();
    launch();
  }
}

void Process::catch_up() {
  const Time ran = offered_ - engine_.left(group_);
  left_ -= ran;
  offered_ -= ran;
  if (closed_) passes_ -= ran;
}

void Process::offer() {
  offered_ = std::min(left_, passes_);
  engine_.offer(group_, offered_);
}

void Process::launch() {
  if (!alive_ || closed_ || left_ > Time{0} || waiting_.empty()) return;
  arrived_ = waiting_.front();
  waiting_.pop_front();
  left_ = from_ms(spec_.gpu_ms);
  launched_at_ = engine_.now();
  ++launches_;
  if (std::exchange(wake_, false)) rings_ = true;
  offer();
}

void Process::choose_phase(Time now) {
  for (const Phase& phase : spec_.phases) {
    if (from_ms(1e3 * phase.from_s) <= now) phase_ = phase;
  }
}

// No two steps of a CPU take equally long, so that nothing keeps in step with the slices.
Time Process::random_step() {
  const double mean_ms = phase_.cpu_ms / phase_.launches;
  return from_ms(std::uniform_real_distribution<double>(0.5, 1.5)(random_) * mean_ms);
}

void Process::begin_burst(Time now) {
  launched_at_ = now;
  if (waits_ > 0) {
    burst_ = in_token() ? 1 : kTailLaunches;
    return;
  }
  arrived_ = now;
  choose_phase(now);
  burst_ = phase_.launches;
  if (spec_.scatter <= 0) return;
  const double part =
      std::uniform_real_distribution<double>(1 - spec_.scatter, 1 + spec_.scatter)(random_);
  burst_ = std::max(1u, static_cast<unsigned>(std::lround(part * phase_.launches)));
}

void Process::launch_one(Time now) {
  if (launched_ == 0) begin_burst(now);
  catch_up();
  left_ += from_ms(in_token() ? spec_.token_ms : phase_.gpu_ms / phase_.launches);
  ++launches_;
  if (std::exchange(wake_, false)) rings_ = true;
  const bool last = ++launched_ == burst_;
  next_ = last ? kNever : now + random_step();
  if (last) waits_since_ = now;
  const bool reached = ring_due_ && ring_after_ != 0 && launched_ >= ring_after_;
  if (reached) ring_due_ = false;
  if (tells_waits_ && (reached || (last && !foreseen_))) rings_ = true;
  offer();
}

void Process::end_step(Time now, JobResult& result) {
  result.latencies_ms.push_back(static_cast<float>(1e3 * monitor::seconds(now - arrived_)));
  result.ends.push_back(now);
}

void Process::end_burst(Time now, Time waits_since) {
  ++bursts_.count;
  const auto us = [](Time span) {
    return static_cast<std::uint16_t>(std::clamp<Time::rep>(span.count() / 1000, 1, 0xffff));
  };
  bursts_.number(bursts_.count) = {static_cast<std::uint16_t>(std::max(1u, launched_)),
                                   us(waits_since - launched_at_), us(now - waits_since)};
  rings_ = rings_ || tells_waits_;
  ring_due_ = true;
  bursts_.waited_ns += static_cast<std::uint64_t>((now - waits_since).count());
  bursts_.burst_ns += static_cast<std::uint64_t>((now - launched_at_).count());
}

// What the CPU does after a wait of an eager server.
void Process::end_wait(Time now, JobResult& result) {
  const bool last = waits_++ == spec_.tail + spec_.tokens;
  if (spec_.tokens == 0 ? last : waits_ > spec_.tail + 1) end_step(now, result);
  if (last) waits_ = 0;
  arrived_ = now;  // the next token is waited for since then
  next_ = now + (in_token() ? from_ms(spec_.token_cpu_ms) : random_step());
  if (last && spec_.rest_ms > 0) next_ += random_span(1e-3 * spec_.rest_ms);
}

void Process::arrive(Time now) {
  if (spec_.pattern == Pattern::kEager) {
    launch_one(now);
    return;
  }
  waiting_.push_back(now);
  if (spec_.pattern == Pattern::kTraining) {
    next_ = kNever;
  } else {
    plan_arrival(now);
  }
  // One that wants to launch rings before it is held.
  if (closed_ && std::exchange(wake_, false)) rings_ = true;
  launch();
}

void Process::ran_out(Time now, JobResult& result) {
  catch_up();
  if (left_ > Time{0}) {
    ++stops_;  // it stands before its gate, and has said so
    return;
  }
  if (spec_.pattern == Pattern::kEager) {
    if (waits_since_ == kNever) return;  // the GPU is quicker than the CPU
    end_burst(now, std::exchange(waits_since_, kNever));
    launched_ = 0;
    end_wait(now, result);
    return;
  }
  end_burst(now, launched_at_);
  end_step(now, result);
  if (spec_.pattern == Pattern::kTraining) {
    if (spec_.cpu_ms > 0) {
      next_ = now + from_ms(spec_.cpu_ms);
    } else {
      waiting_.push_back(now);
    }
  }
  launch();
}

void Process::kill() {
  alive_ = false;
  left_ = Time{0};
  waiting_.clear();
  next_ = kNever;
  offer();
}

}  // namespace switchyard::simulate
