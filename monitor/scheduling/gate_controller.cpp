#include "monitor/scheduling/gate_controller.h"

#include <spdlog/spdlog.h>

namespace switchyard::monitor {
namespace {

HistoryEvent change_of(const Client& client, const Client::Lane& state, const GateOrder& order,
                       Time now) {
  HistoryEvent out = event_of(EventKind::kGate, client.job, client.peer, now);
  set_gpu(out, state.gpu);
  out.value = static_cast<std::uint64_t>(state.order.closed) << 32 | order.closed;
  return out;
}

}  // namespace

GateOrder order_of(const policy::ClientPlan& plan, const Job& job, const MeansInForce& means,
                   bool leaving) {
  GateOrder out;
  out.closed = means.gates ? plan.closed : plan.closed & abi::kClosedByPause;
  // The pause outlives us, be the gate open or not.
  out.paused = (plan.closed & abi::kClosedByPause) != 0;
  if (leaving) out.closed = 0;
  out.armed = means.gates ? plan.armed : out.closed != 0;
  out.watch = means.gates && plan.watch;
  out.linger = means.slices && plan.linger;
  out.time_bursts = plan.time_bursts;
  out.tell_waits = means.gates && plan.tell_waits;
  out.wait_foreseen = plan.wait_foreseen;
  out.ring_after = plan.ring_after;
  out.spacing_us = plan.spacing_us;
  const bool timed = job.pause->on && job.pause->until > Time{0};
  out.pause_until_ns = timed ? static_cast<std::uint64_t>(job.pause->until.count()) : 0;
  return out;
}

void order_gate(Client& client, unsigned lane, Client::Lane& state, const GateOrder& order,
                const Tap& tap, Time now) {
  client.page->write_gate(lane, order);
  client.page->write_pause(order.paused, order.pause_until_ns);
  if (!order.numbered()) {
    state.numbered_since = Time{0};
  } else if (state.numbered_since == Time{0}) {
    state.numbered_since = now;
  }
  if (order.closed != state.order.closed) {
    tap.tell(change_of(client, state, order, now));
    spdlog::debug("client {} (pid {}): gate {:#x} on lane {}", client.id, client.peer.pid,
                  order.closed, lane);
    if (order.closed == 0) ++state.gate_opened;
  }
  state.order = order;
}

bool numbered(const Client::Lane& state, const GateReport& gate) {
  return state.order.numbered() && gate.state == abi::kGateReady;
}

bool busy(const Client::Lane& state, const LaneReport& now, const GateReport& gate) {
  if (numbered(state, gate)) return !gate.done;
  return now.work() != state.last.work();
}

}  // namespace switchyard::monitor
