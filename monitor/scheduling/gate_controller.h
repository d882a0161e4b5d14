// Gates: what a plan wants of a client's gate on one GPU, and what the gate tells about its work.
//
// Concept. A gate is told everything at every look; the page stores what is new (client_page.h).
// With gates out of force only a person's pause still closes one.
//
// Threading: one thread.
#pragma once

#include "monitor/core/registry.h"
#include "monitor/policy/policy.h"
#include "monitor/scheduling/enforcement.h"

namespace switchyard::monitor {

// `leaving`: its memory is on its way out, so what was accepted must finish: open, whatever turns,
// limits and pauses say.
GateOrder order_of(const policy::ClientPlan& plan, const Job& job, const MeansInForce& means,
                   bool leaving = false);

// Brings the order into the page, and remembers since when the client numbers its work. A gate that
// opens or closes is told to `tap`.
void order_gate(Client& client, unsigned lane, Client::Lane& state, const GateOrder& order,
                const Tap& tap, Time now);

// Whether the client numbers its work, so that the GPU itself tells when it has done it.
bool numbered(const Client::Lane& state, const GateReport& gate);

// Whether the GPU has work of the client now. By its numbers where it writes them; else whatever it
// launched since the last look counts.
bool busy(const Client::Lane& state, const LaneReport& now, const GateReport& gate);

}  // namespace switchyard::monitor
