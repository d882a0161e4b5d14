// A made-up process of a play. It works, allocates, moves its memory and launches collectives, all
// by the dice of the play.
//
// Concept. act() is some milliseconds of its life: what the program does, then what its library
// answers to the words of its page. Dice are drawn in one order, whatever the words say. So beside
// a monitor that behaves otherwise the same dice fall for everything else. Traits, drawn once, make
// a process one that never finishes a move, refuses slices, exports its memory, and so on.
//
// Threading: one thread, the test's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "tests/monitor/plays/dice.h"
#include "tests/monitor/plays/mover.h"
#include "tests/monitor/plays/training.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

struct Traits {
  explicit Traits(Dice& dice)
      : stuck(dice.once_in(12)),
        fails(dice.once_in(6)),
        refuses_slices(dice.once_in(6)),
        no_gates(dice.once_in(12)),
        exports(dice.once_in(6)),
        imports(dice.once_in(6)),
        sends(dice.once_in(4)),
        old(dice.once_in(10)),
        copies(dice.once_in(3)),
        faulty(dice.once_in(3)),
        nameless(dice.once_in(10)) {}
  bool stuck, fails, refuses_slices, no_gates, exports, imports, sends, old, copies;
  bool faulty;          // a context of it may end by an error
  bool steady = false;  // it works for long
  bool nameless;        // its PID is of another namespace: NVML lists another one
};

class Player {
 public:
  Player(Ask ask, Joined joined, unsigned lanes, std::uint32_t rank, std::uint32_t ranks,
         const Traits& traits)
      : ask_(std::move(ask)),
        lanes_(lanes),
        rank_(rank),
        ranks_(ranks),
        swappable_(!ask_.swappable.empty()),
        traits_(traits) {
    joined_.emplace(std::move(joined));
    peer_ = joined_->client->peer;
    nameless_pid_ = 2'500'000 + static_cast<pid_t>(id());
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      shim().open_context(lane);
      shim().gate(lane).state = traits_.no_gates ? abi::kGateRefused : abi::kGateReady;
      shim().memory(lane).contexts = swappable_ ? abi::kContextsMayLeave : abi::kContextsNoCalls;
      shim().lane(lane).places = swappable_ ? 1 : 0;
      shim().lane(lane).unpinned = traits_.old ? 0 : abi::kAnswersNone;
      shim().lane(lane).precopies = traits_.old ? 0 : 1;
    }
    communicate();
  }

  const FakeShim& shim() const { return joined_->shim; }
  ClientId id() const { return joined_->id; }
  pid_t pid() const { return peer_.pid; }
  const Peer& peer() const { return peer_; }
  unsigned lanes() const { return lanes_; }
  // By NVML.
  pid_t listed_pid() const { return peer_.pid != 0 ? peer_.pid : nameless_pid_; }
  // Of the rig's.
  unsigned gpu(unsigned lane) const { return shim().lane(lane).uuid[15]; }
  bool works() const { return works_[0] && may_work(0); }
  // By so much it slows down others, which is less while its slices are short.
  unsigned weight() const {
    const std::uint32_t slice = shim().lane().compute_slice_applied_us;
    return !works() ? 0 : slice != 0 && slice < 500 ? 1 : 4;
  }

  // `others`: the weights of all others.
  void act(Rig& rig, Dice& dice, unsigned others) {
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      program(rig, dice, lane);
      library(dice, lane);
      tell_what_stays(dice, lane);
    }
    iterate(rig.now, others);
    note(rig);
    collect(dice, rig.now, others);
    fault(dice);
    const bool rings = dice.once_in(3);
    if (rings && (shim().lane().attention & abi::kWakeMonitor) != 0) {
      shim().lane().attention &= ~abi::kWakeMonitor;
      rig.monitor.look_at_those_of(id(), rig.now);
    }
  }

  // It says this to a monitor that has just begun.
  wire::Hello says_again() const {
    wire::Hello hello = hello_of(ask_, lanes_, wire::kRejoin);
    hello.pid = static_cast<std::uint32_t>(pid());
    write_card_text(shim().card(), hello.card);
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      std::copy_n(shim().lane(lane).uuid, 16, hello.uuid[lane]);
      hello.used_bytes[lane] = shim().lane(lane).used_bytes;
      if ((shim().gate(lane).closed & abi::kClosedByPause) == 0) continue;
      hello.paused = 1;
      hello.pause_until_ns = shim().gate(lane).pause_until_ns;
    }
    return hello;
  }
  // Its library carries over what the page of the last monitor had.
  void rejoin(Joined fresh) {
    const Joined old = std::move(*joined_);
    joined_.emplace(std::move(fresh));
    for (unsigned lane = 0; lane < lanes_; ++lane) carry(old.shim, lane);
    communicate();
    shim().page().communicators[0].launched = old.shim.page().communicators[0].launched.load();
  }

  std::uint64_t verdicts = 0;  // what it was told when it asked for memory

 private:
  static constexpr std::uint64_t kPiece = 64 * kMiB;
  abi::Residency& words(unsigned lane) const { return shim().residency(lane); }

  void carry(const FakeShim& old, unsigned lane) const {
    abi::Lane& to = shim().lane(lane);
    const abi::Lane& from = old.lane(lane);
    shim().open_context(lane);
    shim().gate(lane).state = old.gate(lane).state.load();
    shim().memory(lane).contexts = old.memory(lane).contexts.load();
    to.places = from.places.load();
    std::copy_n(from.uuid, 16, to.uuid);
    to.launches = from.launches.load();
    to.unpinned = traits_.old ? 0 : abi::kAnswersNone;
    to.precopies = from.precopies.load();
    to.used_bytes = from.used_bytes.load();
    to.parked_lane = from.parked_lane.load();
    to.parked_bytes = from.parked_bytes.load();
    abi::Residency& mine = words(lane);
    const abi::Residency& was = old.residency(lane);
    mine.limited = was.limited.load();
    mine.limit_bytes = was.limit_bytes.load();
    mine.total_bytes = was.total_bytes.load();
    mine.resident_bytes = was.resident_bytes.load();
    mine.host_bytes = was.host_bytes.load();
    mine.error = was.error.load();
    mine.phase = was.phase.load();
    mine.answered = abi::kAnswersNone;
  }
  void communicate() const {
    if (ranks_ < 2) return;
    shim().joins_communicator(77, rank_, ranks_).sent = traits_.sends ? 1 : 0;
    shim().joins_communicator(78, rank_, ranks_, 1);
  }

  void program(Rig& rig, Dice& dice, unsigned lane) {
    if (dice.once_in(traits_.steady ? 400 : 40)) works_[lane] = !works_[lane];
    const unsigned launches = 1 + dice.of(30);
    const bool waits = dice.once_in(4), completes = dice.once_in(2), copies = dice.once_in(5);
    const bool allocates = dice.once_in(12), frees = dice.once_in(40);
    const std::uint64_t pieces = 1 + dice.of(10);
    if (!may_work(lane)) {
      words(lane).held_threads = works_[lane] && words(lane).phase != abi::kResident ? 1 : 0;
      shim().gate(lane).held_threads = works_[lane] ? 1 : 0;
      if (completes) shim().complete(lane);
      return;
    }
    words(lane).held_threads = shim().gate(lane).held_threads = 0;
    if (works_[lane]) work(lane, launches, waits, copies);
    if (completes) shim().complete(lane);
    if (allocates || asks_bytes_[lane] != 0) {
      if (asks_bytes_[lane] == 0) asks_bytes_[lane] = pieces * kPiece;
      allocate(rig, lane);
    }
    if (frees) free(lane, pieces * kPiece);
  }

  bool may_work(unsigned lane) const {
    return shim().gate(lane).closed == 0 && words(lane).phase == abi::kResident;
  }

  void work(unsigned lane, unsigned launches, bool waits, bool copies) const {
    abi::Lane& mine = shim().lane(lane);
    abi::Gate& gate = shim().gate(lane);
    mine.launches += launches;
    if (copies || traits_.copies) {
      mine.copies += 1;
      mine.link_bytes += copies ? launches * kGiB / 4 : kMiB;
      mine.device_bytes += launches * kMiB;
    }
    if ((mine.attention & (abi::kGateArmed | abi::kProgress)) != 0) shim().submit(0, lane);
    if (!waits || (mine.attention & abi::kTimeBursts) == 0) return;
    const std::uint32_t at = gate.bursts % abi::kCountedBursts;
    gate.counts[at] = static_cast<std::uint16_t>(launches);
    mine.burst_cpu_us[at] = static_cast<std::uint16_t>(50 * launches);
    mine.burst_waited_us[at] = static_cast<std::uint16_t>(200 + 10 * launches);
    gate.burst_ns += 1000ull * (200 + 60 * launches);
    gate.waited_ns += 1000ull * (200 + 10 * launches);
    gate.launched = static_cast<std::uint32_t>(mine.launches.load());
    gate.bursts += 1;
  }

  // What its library records of its iterations: one takes 60 ms alone.
  void iterate(Time now, unsigned others) {
    const Time period = milliseconds(60 + 3 * others);
    if (!works()) began_ = now;
    for (; began_ + period <= now; began_ += period) shim().iterate(began_);
  }

  // It asks again as long as it is told to wait.
  void allocate(Rig& rig, unsigned lane) {
    const std::uint64_t bytes = std::exchange(asks_bytes_[lane], 0);
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (shim().allocate(bytes, lane)) {
        shim().lane(lane).used_bytes += bytes;
        if (!swappable_) fixed_[lane] += bytes;
        words(lane).total_bytes += swappable_ ? bytes : 0;
        words(lane).resident_bytes += swappable_ ? bytes : 0;
        return;
      }
      const wire::Charged said = rig.charge(*joined_, bytes, lane);
      verdicts = verdicts * 31 + said.verdict;
      if (said.verdict == wire::kWait) asks_bytes_[lane] = bytes;
      if (said.verdict != wire::kGranted) return;
    }
  }
  void free(unsigned lane, std::uint64_t bytes) {
    const std::uint64_t has = swappable_ ? words(lane).resident_bytes.load() : fixed_[lane];
    bytes = std::min(bytes, has);
    if (swappable_) {
      words(lane).resident_bytes -= bytes;
      words(lane).total_bytes -= bytes;
    } else {
      fixed_[lane] -= bytes;
    }
    shim().lane(lane).used_bytes -= bytes;
    shim().release(bytes, lane);
  }

  void library(Dice& dice, unsigned lane) {
    const bool applies = dice.once_in(2);
    const bool refuses = !dice.once_in(4) && traits_.refuses_slices;
    const bool moves = dice.once_in(3), fails = dice.once_in(traits_.fails ? 3 : 40);
    if (applies) shim().apply_slices(lane, refuses ? abi::kSliceRefused : abi::kSliceAccepted);
    if (!swappable_ || traits_.stuck) return;
    if (moves && shim().lane(lane).unpin != 0) {
      shim().lane(lane).unpinned = shim().lane(lane).unpin.load();
    }
    if (moves) MadeUpMover(shim(), lane).step(fails);
  }

  void tell_what_stays(Dice& dice, unsigned lane) const {
    const bool changes = dice.once_in(30);
    const std::uint64_t bytes = dice.of(6) * kPiece;
    if (!changes) return;
    auto& stays = shim().memory(lane).stays_bytes;
    if (traits_.exports) stays[static_cast<unsigned>(Stays::kIpcExported)] = bytes;
    // The last is more than there can be.
    const std::uint64_t imported = bytes < 5 * kPiece ? bytes : 100 * kGiB;
    if (traits_.imports) stays[static_cast<unsigned>(Stays::kIpcImported)] = imported;
    stays[static_cast<unsigned>(Stays::kSmall)] = bytes / 32;
  }

  void collect(Dice& dice, Time now, unsigned others) const {
    const unsigned launches = dice.of(5);
    const bool enters = dice.once_in(8), odd = dice.once_in(60);
    if (ranks_ < 2) return;
    abi::Page& page = shim().page();
    const abi::Communicator& slot = page.communicators[0];
    page.process.left = page.process.entered.load();
    for (unsigned i = 0;; ++i) {
      const bool stops =
          page.process.cut != 0 && slot.target == static_cast<std::uint32_t>(slot.launched);
      page.process.stopped = stops && works_[0] ? 1 : 0;
      if (i == launches || stops || !works_[0] || !may_work(0)) return;
      Training::collective(shim(), now, ranks_, others, odd && i == 0);
      page.process.entered += 1;
      if (!enters) page.process.left = page.process.entered.load();
    }
  }

  void fault(Dice& dice) const {
    const bool ends = dice.once_in(150);
    if (!ends || !traits_.faulty || (shim().lane().attention & abi::kTellFaults) == 0) return;
    shim().lane().fault = 700;  // an illegal address
  }

  // NVML sees what it has.
  void note(Rig& rig) const {
    const pid_t pid = listed_pid();
    for (auto& gpu : rig.gpus.uses) gpu.erase(pid);
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      const std::uint64_t there = fixed_[lane] + words(lane).resident_bytes;
      rig.gpus.uses[gpu(lane)][pid] += there + 100 * kMiB;
      const std::uint32_t at = shim().lane(lane).parked_lane;
      if (at == 0 || at > lanes_) continue;
      rig.gpus.uses[gpu(at - 1)][pid] += shim().lane(lane).parked_bytes;
    }
  }

  Ask ask_;
  unsigned lanes_;
  std::uint32_t rank_, ranks_;
  bool swappable_;
  Traits traits_;
  std::optional<Joined> joined_;
  Peer peer_;  // of its own: another monitor knows another client
  pid_t nameless_pid_ = 0;
  bool works_[2] = {true, true};
  std::uint64_t fixed_[2] = {}, asks_bytes_[2] = {};
  Time began_{0};
};

}  // namespace switchyard::monitor::test
