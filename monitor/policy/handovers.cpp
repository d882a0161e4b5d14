#include "monitor/policy/handovers.h"

#include <algorithm>
#include <cassert>

namespace switchyard::monitor::policy {
namespace {

using Phase = Handover::Phase;

Handover in_phase(Handover to, Phase phase) {
  to.phase = phase;
  if (phase != Phase::kPrepared) to.soon_bytes = 0;
  return to;
}

}  // namespace

Handover next(Handover from, HandoverEvent event, std::uint64_t soon_bytes) {
  const bool prepared = from.phase == Phase::kPrepared;
  if (from.phase == Phase::kEnded) return from;
  switch (event) {
    case HandoverEvent::kPlannedAgain:
      if (!prepared || soon_bytes == 0) return in_phase(from, Phase::kBegun);
      from.soon_bytes = soon_bytes;
      return from;
    case HandoverEvent::kWithdrawn:
      return prepared ? in_phase(from, Phase::kEnded) : from;
    case HandoverEvent::kGivesAnew:
      return prepared ? from : in_phase(from, Phase::kEnded);
    case HandoverEvent::kDonorLeaves:
      return in_phase(from, Phase::kBegun);
    case HandoverEvent::kReplaced:
    case HandoverEvent::kRecipientLeaves:
    case HandoverEvent::kReturns:
    case HandoverEvent::kGone:
      return in_phase(from, Phase::kEnded);
  }
  return from;
}

template <typename Which>
void Handovers::feed(HandoverEvent event, Which which) {
  for (Handover& each : all_) {
    if (which(each)) each = next(each, event);
  }
  const auto ended = [](const Handover& each) { return each.phase == Phase::kEnded; };
  all_.erase(std::remove_if(all_.begin(), all_.end(), ended), all_.end());
}

void Handovers::plan(const Handover& planned) {
  assert(planned.number != 0);
  const auto same = [&](const Handover& each) {
    return each.phase == Phase::kPrepared && each.gpu == planned.gpu &&
           each.donor == planned.donor && each.recipient == planned.recipient;
  };
  if (const auto found = std::find_if(all_.begin(), all_.end(), same); found != all_.end()) {
    *found = next(*found, HandoverEvent::kPlannedAgain, planned.soon_bytes);
    return;
  }
  withdraw(planned.gpu);
  if (planned.recipient == 0) return;
  feed(HandoverEvent::kReplaced, [&](const Handover& each) {
    return each.gpu == planned.gpu &&
           (each.donor == planned.donor || each.recipient == planned.recipient);
  });
  all_.push_back(planned);
  all_.back().phase = planned.soon_bytes != 0 ? Phase::kPrepared : Phase::kBegun;
}

void Handovers::withdraw(std::size_t gpu) {
  feed(HandoverEvent::kWithdrawn, [&](const Handover& each) { return each.gpu == gpu; });
}

void Handovers::gives_anew(std::size_t gpu, std::uint64_t client) {
  feed(HandoverEvent::kGivesAnew,
       [&](const Handover& each) { return each.gpu == gpu && each.donor == client; });
}

void Handovers::leaves(std::size_t gpu, std::uint64_t client) {
  feed(HandoverEvent::kRecipientLeaves,
       [&](const Handover& each) { return each.gpu == gpu && each.recipient == client; });
  feed(HandoverEvent::kDonorLeaves,
       [&](const Handover& each) { return each.gpu == gpu && each.donor == client; });
}

void Handovers::returns(std::size_t gpu, std::uint64_t client) {
  feed(HandoverEvent::kReturns, [&](const Handover& each) {
    return each.gpu == gpu && (each.donor == client || each.recipient == client);
  });
}

void Handovers::keep_those_of(const std::function<bool(std::uint64_t)>& lives) {
  feed(HandoverEvent::kGone,
       [&](const Handover& each) { return !lives(each.donor) || !lives(each.recipient); });
}

const Handover* Handovers::given_by(std::size_t gpu, std::uint64_t client) const {
  for (const Handover& each : all_) {
    if (each.gpu == gpu && each.donor == client) return &each;
  }
  return nullptr;
}

std::uint64_t Handovers::gives(std::size_t gpu, std::uint64_t client) const {
  const Handover* given = given_by(gpu, client);
  return given != nullptr ? given->number : 0;
}

std::uint64_t Handovers::takes(std::size_t gpu, std::uint64_t client) const {
  for (const Handover& each : all_) {
    if (each.gpu == gpu && each.recipient == client) return each.number;
  }
  return 0;
}

}  // namespace switchyard::monitor::policy
