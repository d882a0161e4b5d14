// The monitor's side of a client's page (switchyard/abi.h): the memfd, the two bells beside it, and
// every access to its words.
//
// Concept. The client may write anything anywhere in its page at any time. So nothing here hands
// out a reference into it: a word is copied, bounded, and used. The monitor keeps its own memory
// (its grants, the slices that it wrote) on its own side.
//
// A bell is a pair of datagram sockets. The flags of an open file belong to every process that has
// it, so the monitor shares none. Each side has an end of its own, and its calls ask not to wait.
//
// Threading: one thread on the monitor's side; the client's threads on the other.
#pragma once

#include <algorithm>
#include <array>
#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "monitor/core/page_directory.h"
#include "monitor/policy/bursts.h"
#include "monitor/policy/gradient_noise.h"
#include "monitor/policy/launch_classes.h"
#include "monitor/policy/slices.h"
#include "switchyard/abi.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

// What a client says about one GPU, copied and bounded.
struct LaneReport {
  std::uint64_t launches = 0, graph_launches = 0, copies = 0;
  std::uint64_t link_bytes = 0, device_bytes = 0;  // that copies moved
  std::uint32_t contexts = 0;                      // at most 64
  std::uint32_t compute_groups = 0;                // at most 64
  std::uint32_t slice_applied_seq = 0;
  std::uint32_t compute_slice_applied_us = 0, copy_slice_applied_us = 0;
  std::uint32_t slice_status = 0;
  std::uint64_t refusals = 0;
  bool under_mps = false;   // the driver told it so
  std::uint32_t fault = 0;  // the CUresult by which a context ended; 0: none did, or none asked
  bool operator==(const LaneReport&) const = default;

  // Anything that moved means that the client uses the GPU.
  std::uint64_t work() const { return launches + graph_launches + copies; }
  bool has_context() const { return contexts > 0 || compute_groups > 0; }
  // It was asked for slices and has a context, but never saw the channel groups being made: some
  // sandboxes answer libcuda's ioctls elsewhere.
  bool groups_unseen() const {
    return contexts > 0 && compute_groups == 0 && slice_status == abi::kSliceNoGroup;
  }
};

// What a client says about its gate on one GPU, copied and bounded.
struct GateReport {
  std::uint32_t state = abi::kGateUnready;  // a value that we don't know reads as refused
  std::uint32_t error = 0;
  std::uint32_t held_threads = 0;  // at most 65,535
  std::uint32_t waits = 0;
  bool done = true;            // nothing that has a number is left on the GPU
  std::uint64_t progress = 0;  // moves with every number that is done
  policy::Bursts bursts;       // counted while bursts are timed
  bool operator==(const GateReport&) const = default;
};

// What the monitor wants of a gate.
struct GateOrder {
  std::uint32_t closed = 0;          // abi::kClosed* bits
  bool armed = false;                // a closed gate is armed whatever this says
  bool watch = false;                // numbers are wanted
  bool linger = false;               // numbers, and a moment more of the GPU after each burst
  std::uint32_t spacing_us = 0;      // 0: the client's default
  std::uint64_t pause_until_ns = 0;  // 0: never
  bool time_bursts = false;          // waits of the CPU are timed
  bool tell_waits = false;           // they are told when they begin and end, with the two below
  bool wait_foreseen = false;        // the next may begin untold
  std::uint32_t ring_after = 0;      // launches since the last wait; 0: not for launches
  bool paused = false;               // by a person, also while it is open for memory that leaves
  // Whether the client writes numbers, which tell if it has work on the GPU.
  bool numbered() const { return armed || watch || linger || closed != 0; }
  bool operator==(const GateOrder&) const = default;
};

// What a client says about its swappable memory on one GPU, copied and bounded.
struct ResidencyReport {
  std::uint32_t phase = abi::kResident;  // a value that we don't know reads as resident
  std::uint32_t error = abi::kSwapFine;  // likewise as failed
  std::uint32_t swap_result = 0;
  std::uint32_t held_threads = 0;  // at most 65,535
  std::uint32_t moves = 0;
  std::uint32_t answered = 0;  // the order that phase and error answer (abi.h)
  std::uint64_t total_bytes = 0;
  std::uint64_t resident_bytes = 0;  // at most total_bytes
  std::uint64_t host_bytes = 0;
  std::uint64_t moved_bytes = 0;
  std::uint64_t parked_bytes = 0;  // at most total_bytes
  std::uint32_t parked_lane = 0;   // the lane, and 1, whose GPU they are on
  // What its page says of its order: another monitor's, where it carried that over.
  std::uint32_t limited = abi::kUnlimited;
  bool operator==(const ResidencyReport&) const = default;

  std::uint64_t away_bytes() const { return total_bytes - resident_bytes; }
  // None of it is on the device, or there is none.
  bool away() const { return phase == abi::kAbsent || detached() || total_bytes == 0; }
  // Nor is any context of the process.
  bool detached() const { return phase == abi::kDetached; }
  bool resident() const { return phase == abi::kResident || total_bytes == 0; }
};

// What a client tells people of its memory on one GPU, copied. Its bytes are bounded by who adds
// them up, for only the account knows how many there are.
struct MemoryReport {
  bool swappable = false;                     // its memory may be moved
  std::array<std::uint64_t, kStays> stays{};  // by reason (stays.h)
  std::uint64_t moved_out_bytes = 0, moved_in_bytes = 0, spared_bytes = 0, taken_bytes = 0;
  std::uint32_t times_out = 0;
  std::uint32_t contexts = abi::kContextsUnknown;  // whether they can leave (abi.h)
};

// On which GPU a lane is, as the client says. It changes when the process moves.
struct PlaceReport {
  bool movable = false;  // its library and driver can move it
  std::array<std::uint8_t, 16> uuid{};
};

// A client's report on a communicator that it is a rank of, copied and bounded.
struct CommunicatorReport {
  unsigned slot = 0;
  std::uint64_t id = 0;
  unsigned lane = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;  // 0: it doesn't know yet
  std::uint32_t last_kind = 0;
  std::uint64_t launched = 0, bytes = 0, last_bytes = 0;
  std::uint64_t last_ns = 0;  // CLOCK_MONOTONIC; 0: never
  std::uint32_t sent = 0;
  bool operator==(const CommunicatorReport&) const = default;
};

// Something that a client has launched (abi.h: Record), copied.
struct RecordReport {
  std::uint32_t time_us = 0;
  std::uint32_t what = 0;
  std::uint32_t bytes = 0;
};

// A collective of which both norms are known (abi.h: Norm), copied.
struct NormReport {
  std::uint32_t what = 0;
  std::uint64_t launched = 0;
  std::uint64_t elements = 0;
  double before = 0;
  double after = 0;
};

// How far a client's records were read.
struct RecordCursor {
  std::uint32_t read = 0;
  std::uint32_t unfinished = 0;  // the record that was still being written; 0: none
};

// An operation in a communicator.
struct OperationReport {
  std::uint32_t kind = 0;
  std::uint64_t bytes = 0;
};

// What a client says about a cut (abi.h), as of one moment.
struct CutReport {
  std::vector<CommunicatorReport> communicators;
  bool launching = false;  // a thread is in a launch, or was while this was read
  bool stopped = false;    // a thread sleeps at the cut
};

// How much of it the monitor wants on the device at most, and what the host may keep of it.
struct ResidencyOrder {
  bool limited = false;
  std::uint64_t limit_bytes = 0;
  std::uint64_t host_limit_bytes = 0;
  std::uint64_t gives = 0;  // numbers of hand-overs (switchyard/handover.h)
  std::uint64_t takes = 0;
  std::uint64_t soon_bytes = 0;  // that will leave in `gives`, once it is limited
  std::uint32_t number = 0;      // of the attempt (abi.h: order); 0: nothing was asked yet
  bool contexts = false;         // limited, and the contexts are to leave as well
  std::uint64_t park_bytes = 0;  // that may be on the GPU of another lane
  std::uint32_t park_lane = 0;   // that lane, and 1; 0: none
  bool park_only = false;        // and nothing in the host
  bool operator==(const ResidencyOrder&) const = default;
};

// Whether what the client says is about this order, or there was none yet. A library that knows of
// no numbers answers whatever it was told last.
inline bool answers(const ResidencyReport& said, const ResidencyOrder& order) {
  return order.number == 0 || said.answered == 0 || said.answered == order.number;
}
// All memory that had to leave has left, or there is none that could. What it says of an earlier
// order doesn't count: it may be coming back from there.
inline bool has_left(const ResidencyReport& said, const ResidencyOrder& order) {
  if (order.contexts) return said.detached() && answers(said, order);
  return said.total_bytes == 0 || (said.away() && answers(said, order));
}

// Of a client's swappable memory, what nobody else can have: it is there, or may come at any time.
inline std::uint64_t held_bytes(const ResidencyReport& said, const ResidencyOrder& order) {
  const std::uint64_t limit = order.limited ? order.limit_bytes : 0;
  return std::max(said.resident_bytes, std::min(limit, said.total_bytes));
}
// The memory there beyond the limit: it is on its way out.
inline std::uint64_t excess_bytes(const ResidencyReport& said, const ResidencyOrder& order) {
  return order.limited ? said.resident_bytes - std::min(said.resident_bytes, order.limit_bytes) : 0;
}

class ClientPage {
 public:
  // Null, with a reason in `why`, when the system has no memory or no descriptors left.
  static std::unique_ptr<ClientPage> make(unsigned lane_count, std::string& why,
                                          const PageDirectory& directory = {});

  unsigned lane_count() const { return lane_count_; }
  std::uint32_t bytes() const { return directory_.page_bytes(); }
  int memfd() const { return memfd_.get(); }
  int clients_doorbell() const { return clients_doorbell_.get(); }
  int clients_wake() const { return clients_wake_.get(); }
  // The monitor's own end: readable once the client has rung.
  int wake() const { return wake_.get(); }
  // After they were sent: the mapping lives on without the memfd, and the ends are the client's.
  void drop_sent();

  // The client may look at the page from here on.
  void publish();

  // A person's pause, in the head: what any version says and hears. 0: without end.
  void write_pause(bool paused, std::uint64_t until_ns);

  void set_card(const JobCard& card);
  void set_heartbeat(std::uint64_t beat);
  // Tells the client's service thread to look. Never blocks.
  void ring();
  // Forgets what rang so far. True when it rang at least once. Never blocks. `came`: descriptors
  // that a hostile client sent along, for a Closer.
  bool answer_wake(std::vector<Fd>& came);

  // pre: lane < lane_count(), for all below.
  LaneReport report(unsigned lane) const;
  void set_quota(unsigned lane, std::uint64_t quota_bytes);
  void set_account(unsigned lane, std::uint64_t others_used, std::uint64_t available);
  void write_slices(unsigned lane, Slices slices, std::uint32_t seq);
  void ask_to_wake(unsigned lane);
  void ask_for_faults(unsigned lane);

  GateReport gate(unsigned lane) const;
  // Stores what differs from what stands there, so it may be called at every look. Arms before it
  // closes, wakes whom it held when it opens, and disarms after that.
  void write_gate(unsigned lane, const GateOrder& order);

  ResidencyReport residency(unsigned lane) const;
  MemoryReport memory(unsigned lane) const;
  // The charge there by the client's own ledger: it is for people, and decides nothing.
  std::uint64_t used_bytes(unsigned lane) const;
  PlaceReport place(unsigned lane) const;
  // The GPUs of the machine, at most kMaxGpus, and on which of them the lane shall be when its
  // contexts come back. Write it before the order that brings them.
  void write_place(unsigned lane, const std::vector<std::array<std::uint8_t, 16>>& machine,
                   std::size_t shall_be_on);
  // Its host pool may be unpinned while it works (abi.h: unpin); 0: it is pinned again. `precopy`:
  // its memory is copied there before.
  void write_unpin(unsigned lane, std::uint32_t number, bool precopy = false);
  // The request that it has answered; 0: its library knows of none.
  std::uint32_t unpinned(unsigned lane) const;
  bool precopies(unsigned lane) const;
  // Stores the bound before the word that puts it in force.
  void write_residency(unsigned lane, const ResidencyOrder& order);

  // The communicators that it has; what it is changing now is left out.
  std::vector<CommunicatorReport> communicators() const;
  // At most so many of them are looked at from here on, however many it claims.
  void bound_communicators(std::size_t most);
  unsigned most_communicators() const { return most_communicators_; }
  // Operations that it has launched, by kind (switchyard/collectives.h).
  std::array<std::uint32_t, abi::kMostCollectives> collectives() const;
  std::array<std::uint64_t, abi::kMostCollectives> collective_bytes() const;
  std::uint32_t launching_thread() const;
  bool launching() const;  // some thread of it is inside a launch
  // Communicators that it has besides, and those beyond the bound, at most 65,535 and the bound.
  std::uint32_t unwatched_communicators() const;
  CutReport cut() const;
  // At which count it may stop, with a cut that is asked for next.
  void set_target(const CommunicatorReport& communicator, std::uint64_t launched);
  // 0: none is asked for. Wakes who sleeps there.
  void ask_for_cut(std::uint32_t number);

  // Appends what was launched since the last call; at most as much as the ring holds. Answers how
  // many records there were; more than were appended: some are lost.
  std::uint32_t read_records(RecordCursor& cursor, std::vector<RecordReport>& out) const;
  // Operation number `launched` of its communicator, if it is among the last ones.
  std::optional<OperationReport> operation(const CommunicatorReport& communicator,
                                           std::uint64_t launched) const;
  // The same of timings (abi.h), whose words mean other things.
  std::uint32_t read_timings(RecordCursor& cursor, std::vector<RecordReport>& out) const;
  // How many there were so far.
  std::uint32_t timed() const;
  // Up to which of them it may go on, if it may at all.
  void time_collectives(bool on, std::uint32_t until);
  // The same for norms.
  std::uint32_t read_norms(RecordCursor& cursor, std::vector<NormReport>& out) const;
  // By which collective it shall know a step.
  void write_norm_order(const CommunicatorReport& communicator, const noise::Cadence& cadence);
  // Why it did not measure some, as bits that we know (switchyard/norms.h).
  std::uint32_t unmeasured() const;
  // Which launches it records.
  void record_launches(bool on, const LaunchClasses::Set& classes);

  // Credit as the client shows it, never more than `granted`.
  std::uint64_t credit(unsigned lane, std::uint64_t granted) const;
  void grant(unsigned lane, std::uint64_t bytes);
  // Takes back up to `bytes` of unused credit; answers how much. Bounded even while the client
  // changes the word all the time.
  std::uint64_t take_back(unsigned lane, std::uint64_t bytes, std::uint64_t granted);

 private:
  ClientPage() = default;
  policy::Bursts bursts(unsigned lane) const;
  void ask_for(std::uint32_t bit, bool on);
  // An element of a section; where the client has none, words of our own that nobody else has.
  template <typename Element>
  Element& element(abi::SectionId id, unsigned at = 0) const {
    static_assert(sizeof(Element) <= kMostElementBytes);
    const abi::Section& section = directory_.at(id);
    std::byte* base = static_cast<std::byte*>(region_.get_address());
    std::byte* there =
        at < section.count ? base + section.offset + std::size_t{section.stride} * at : absent(id);
    return *reinterpret_cast<Element*>(there);
  }
  std::byte* absent(abi::SectionId id) const;
  abi::Head& head() const { return *static_cast<abi::Head*>(region_.get_address()); }
  abi::Process& process() const { return element<abi::Process>(abi::SectionId::kProcess); }
  abi::Lane& lane(unsigned at) const { return element<abi::Lane>(abi::SectionId::kLanes, at); }
  abi::Gate& gate_at(unsigned at) const { return element<abi::Gate>(abi::SectionId::kGates, at); }
  abi::Residency& residency_at(unsigned at) const {
    return element<abi::Residency>(abi::SectionId::kResidencies, at);
  }
  abi::Communicator& communicator_at(unsigned slot) const {
    return element<abi::Communicator>(abi::SectionId::kCommunicators, slot);
  }
  unsigned claimed_communicators() const;
  std::optional<RecordReport> record(abi::SectionId ring, std::uint32_t number) const;
  std::optional<NormReport> norm(std::uint32_t number) const;

  static constexpr std::size_t kMostElementBytes = sizeof(abi::Card);
  struct alignas(64) Absent {
    std::byte words[kMostElementBytes] = {};
  };

  PageDirectory directory_;
  mutable std::map<abi::SectionId, Absent> absent_;
  boost::interprocess::mapped_region region_;
  Fd memfd_, doorbell_, wake_;
  Fd clients_doorbell_, clients_wake_;
  unsigned lane_count_ = 0;
  unsigned most_communicators_ = abi::kMostCommunicators;
};

}  // namespace switchyard::monitor
