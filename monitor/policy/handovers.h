// Which client hands its memory over to which: the rules alone.
//
// Concept. A hand-over has a donor and a recipient on one GPU, and a number by which the two find
// each other (switchyard/handover.h). It is prepared a moment before the donor has to leave. The
// donor offers its memory while it still works, so that no time is lost later.
//
//     state      input                                        → state
//     (none)     planned, leaves soon                         → Prepared
//     (none)     planned, leaves now                          → Begun
//     Prepared   planned again for the two, leaves soon       → Prepared, with the new bytes
//     Prepared   planned again, leaves now; the donor leaves  → Begun
//     Prepared   withdrawn, or planned for others             → Ended
//     Begun      the donor gives anew                         → Ended
//     both       the recipient leaves                         → Ended
//     both       either comes back for good, or has gone      → Ended
//     both       replaced: one for the same donor, or for the same recipient
//                                                             → Ended
//
// Nothing is offered to one that has gone: what is offered is free for nobody else.
//
// Threading: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace switchyard::monitor::policy {

struct Handover {
  enum class Phase : std::uint8_t { kPrepared, kBegun, kEnded };
  std::size_t gpu = 0;
  std::uint64_t donor = 0;  // ids of clients
  std::uint64_t recipient = 0;
  std::uint64_t number = 0;      // not used before, and not 0
  std::uint64_t soon_bytes = 0;  // that will leave, to prepare it; 0: it leaves now
  Phase phase = Phase::kBegun;
};

enum class HandoverEvent : std::uint8_t {
  kPlannedAgain,  // `soon_bytes`
  kWithdrawn,     // it comes to nothing, unless it has begun
  kReplaced,
  kGivesAnew,  // the donor gives more, to whom is not known yet
  kDonorLeaves,
  kRecipientLeaves,
  kReturns,  // either is told to come back for good
  kGone,     // either
};
inline constexpr unsigned kHandoverEvents = 8;

Handover next(Handover from, HandoverEvent event, std::uint64_t soon_bytes = 0);

// Those that have not ended. A client is the donor of one at most on a GPU, and the recipient of
// one at most.
class Handovers {
 public:
  // Without a recipient: nobody can have what leaves. One prepared for the same two keeps its
  // number; all others that are prepared on the GPU end.
  void plan(const Handover& planned);
  // Nobody waits any more for what is prepared on the GPU.
  void withdraw(std::size_t gpu);
  void gives_anew(std::size_t gpu, std::uint64_t client);
  // It is told to leave, or to come back for good.
  void leaves(std::size_t gpu, std::uint64_t client);
  void returns(std::size_t gpu, std::uint64_t client);
  void keep_those_of(const std::function<bool(std::uint64_t)>& lives);

  // Of the client, as the donor: null: there is none.
  const Handover* given_by(std::size_t gpu, std::uint64_t client) const;
  // The numbers that it may give and take under; 0: none.
  std::uint64_t gives(std::size_t gpu, std::uint64_t client) const;
  std::uint64_t takes(std::size_t gpu, std::uint64_t client) const;
  const std::vector<Handover>& all() const { return all_; }

 private:
  template <typename Which>
  void feed(HandoverEvent event, Which which);

  std::vector<Handover> all_;
};

}  // namespace switchyard::monitor::policy
