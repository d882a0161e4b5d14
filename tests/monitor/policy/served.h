// A made-up server whose waits are foreseen, beside a low job, for the tests of that rule.
//
// Threading: one test, one thread.
#pragma once

#include <gtest/gtest.h>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A server that launches every 20 us and then waits; the monitor looks whenever it rings.
struct Served {
  EventLoop event_loop;
  Plan plan;
  Time launch{microseconds(20)};
  Time wait{microseconds(50)};
  unsigned closes = 0;
  unsigned late = 0;  // waits that began before an open gate
  unsigned waits = 0;
  Time shut{0};
  bool low_copies = false;  // and does nothing else

  Served() {
    event_loop.snapshot.clients = {client(1, Priority::kHigh), client(2, Priority::kLow)};
    event_loop.snapshot.rules.foresee = true;
    look();
  }

  ClientView& high() { return event_loop[0]; }
  ClientView& low() { return event_loop[1]; }
  bool closed() const { return (plan.clients[1].closed & abi::kClosedByTurn) != 0; }
  const ClientPlan& told() const { return plan.clients[0]; }
  std::uint32_t slice_us() const { return plan.clients[1].slices.compute_us; }
  bool on() const { return event_loop.state.high.foreseen_us != 0; }

  void look() {
    const bool before = !plan.clients.empty() && closed();
    ++low().work;
    low().copies += low_copies ? 1 : 0;
    plan = event_loop.decide();
    closes += !before && closed() ? 1 : 0;
    EXPECT_LE(shorts(plan), 1u);
  }
  void pass(Time span) {
    const Time end = event_loop.now + span;
    for (Time at = next_look(); at <= end; at = next_look()) {
      shut += closed() ? at - event_loop.now : Time{0};
      event_loop.now = at;
      look();
    }
    shut += closed() ? end - event_loop.now : Time{0};
    event_loop.now = end;
  }
  Time next_look() const {
    const Time tick = event_loop.state.looked_at + milliseconds(250);
    const bool sooner = plan.look_again != Time{0} && plan.look_again < tick;
    return std::max(event_loop.now, sooner ? plan.look_again : tick);
  }
  void launches(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      ++high().work;
      const std::uint32_t launched = ++high().bursts.launched;
      if (told().tell_waits && told().ring_after != 0 && launched == told().ring_after) look();
      pass(launch);
    }
  }
  void begin_wait() {
    high().bursts.waiting = true;
    ++waits;
    late += closed() ? 0 : 1;
    if (told().tell_waits && !told().wait_foreseen) look();
  }
  void end_wait(Time took) {
    pass(took);
    Bursts& bursts = high().bursts;
    ++bursts.count;
    const Time cpu = bursts.launched * launch;
    const auto us = [](Time span) {
      return static_cast<std::uint16_t>(std::clamp<Time::rep>(span / microseconds(1), 1, 0xffff));
    };
    bursts.number(bursts.count) = {static_cast<std::uint16_t>(bursts.launched), us(cpu), us(took)};
    bursts.waited_ns += static_cast<std::uint64_t>(took.count());
    bursts.burst_ns += static_cast<std::uint64_t>((took + cpu).count());
    bursts.launched = 0;
    bursts.waiting = false;
    if (told().tell_waits) look();
  }
  void step(unsigned count) {
    launches(count);
    begin_wait();
    end_wait(wait);
  }
  void go(Time span, unsigned count) {
    for (const Time end = event_loop.now + span; event_loop.now < end;) step(count);
  }
  void count_anew() {
    closes = late = waits = 0;
    shut = Time{0};
  }
};

}  // namespace switchyard::monitor::policy
