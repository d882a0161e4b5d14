// The client's side of a page, as a shim would use it, and the Hello it would send.
//
// Threading: one thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <initializer_list>
#include <string>

#include "monitor/core/job_settings.h"
#include "switchyard/wire.h"
#include "tests/monitor/fake_gpus.h"
#include "tests/support/card.h"

namespace switchyard::monitor::test {

struct Ask {
  std::string job = {}, name = {}, priority = {}, share = {}, memory = {}, on_oom = {},
              oom_timeout = {}, limit = {}, deadline = {}, swappable = {}, idle_release = {},
              oversubscribe = {}, park = {}, guard = {}, gradient_noise = {};
};

inline JobCard card_of(const Ask& ask) {
  JobCard card{};
  set_text(card.job, ask.job);
  set_text(card.name, ask.name);
  set_text(card.priority, ask.priority);
  set_text(card.share, ask.share);
  set_text(card.memory, ask.memory);
  set_text(card.on_oom, ask.on_oom);
  set_text(card.oom_timeout, ask.oom_timeout);
  set_text(card.limit, ask.limit);
  set_text(card.deadline, ask.deadline);
  set_text(card.swappable, ask.swappable);
  set_text(card.idle_release, ask.idle_release);
  set_text(card.oversubscribe, ask.oversubscribe);
  set_text(card.park, ask.park);
  set_text(card.guard, ask.guard);
  set_text(card.gradient_noise, ask.gradient_noise);
  return card;
}

inline wire::Hello hello_of(const Ask& ask, unsigned gpus = 1, std::uint32_t flags = 0) {
  wire::Hello hello{};
  hello.layout_version = abi::kLayoutVersion;
  hello.flags = flags;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.lane_count = gpus;
  write_card_text(card_of(ask), hello.card);
  hello.page_bytes = abi::kPageBytes;
  for (const abi::Section& section : abi::kSections)
    hello.sections[hello.section_count++] = section;
  set_text(hello.process, "fake");
  for (unsigned i = 0; i < gpus; ++i) {
    const Uuid uuid = uuid_of(static_cast<unsigned char>(i));
    std::copy(uuid.begin(), uuid.end(), hello.uuid[i]);
  }
  return hello;
}

class FakeShim {
 public:
  // Maps the page; the descriptor stays the caller's.
  explicit FakeShim(int memfd) {
    page_ = static_cast<abi::Page*>(
        ::mmap(nullptr, abi::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
    if (page_ == MAP_FAILED) page_ = nullptr;
  }
  FakeShim(FakeShim&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  FakeShim& operator=(FakeShim&&) = delete;
  ~FakeShim() {
    if (page_ != nullptr) ::munmap(page_, abi::kPageBytes);
  }

  abi::Page& page() const { return *page_; }
  JobCard card() const { return card_in(page_->card.text); }
  std::uint64_t heartbeat() const { return page_->head.heartbeat.load(); }
  abi::Lane& lane(unsigned at = 0) const { return page_->lanes[at]; }
  abi::Gate& gate(unsigned at = 0) const { return page_->gates[at]; }
  abi::Residency& residency(unsigned at = 0) const { return page_->residencies[at]; }
  abi::Memory& memory(unsigned at = 0) const { return page_->memories[at]; }
  // Of `ranks` in all, at one of the page's places.
  abi::Communicator& joins_communicator(std::uint64_t id, std::uint32_t rank, std::uint32_t ranks,
                                        unsigned at = 0) const {
    abi::Communicator& communicator = page_->communicators[at];
    communicator.id = id;
    communicator.rank = rank;
    communicator.ranks = ranks;
    communicator.use = 1;
    page_->process.communicators_used = std::max(page_->process.communicators_used.load(), at + 1);
    return communicator;
  }
  bool armed(unsigned at = 0) const { return (lane(at).attention & abi::kGateArmed) != 0; }
  bool watched(unsigned at = 0) const { return (lane(at).attention & abi::kProgress) != 0; }

  // A context was made: from now on the client counts.
  void open_context(unsigned at = 0) const {
    lane(at).contexts = 1;
    lane(at).compute_groups = 1;
    lane(at).in_use = 1;
  }
  void launch(unsigned at = 0) const { lane(at).launches += 10; }
  // Its contexts are on that GPU.
  void be_on(unsigned gpu, unsigned at = 0) const {
    const Uuid uuid = uuid_of(static_cast<unsigned char>(gpu));
    std::copy(uuid.begin(), uuid.end(), lane(at).uuid);
  }
  // What it records of an iteration that began then, as far as it is asked to.
  void iterate(Time began) const {
    if ((lane().attention & abi::kRecordLaunches) == 0) return;
    for (const std::uint32_t what : {0x101u, 0x202u, 0x202u, 0x303u}) {
      const std::uint32_t kind = what % abi::kLaunchClasses;
      const std::uint64_t wanted = page_->process.recorded_classes[kind / 64];
      if ((wanted >> kind % 64 & 1) != 0) record(what | abi::kLaunchRecord, began);
    }
  }
  // A collective is launched in one of its communicators.
  void collective(std::uint32_t kind, std::uint32_t bytes, Time when, unsigned at = 0) const {
    abi::Communicator& slot = page_->communicators[at];
    const std::uint64_t launched = ++slot.launched;
    slot.last_kind = kind;
    slot.last_bytes = bytes;
    slot.last_ns = static_cast<std::uint64_t>(when.count());
    record(abi::collective_record(at, kind, launched), when, bytes);
  }
  void record(std::uint32_t what, Time when, std::uint32_t bytes = 0) const {
    write(page_->records, abi::kRecords, page_->process.recorded,
          {what, static_cast<std::uint32_t>(when / std::chrono::microseconds(1)), bytes});
  }
  // How long a collective took, or another mark of the timings.
  void tell_timing(std::uint32_t what, std::uint32_t began_us = 0,
                   std::uint32_t took_ns = 0) const {
    write(page_->timings, abi::kTimings, page_->process.timed, {what, began_us, took_ns});
  }
  // The squared norms of a collective's gradient, before and after it.
  void tell_norms(std::uint32_t what, std::uint64_t launched, std::uint64_t elements, double before,
                  double after) const {
    const std::uint32_t number = ++page_->process.normed;
    abi::Norm& at = page_->norms[(number - 1) % abi::kNorms];
    at.what = what;
    at.launched = launched;
    at.elements = elements;
    at.before = std::bit_cast<std::uint64_t>(before);
    at.after = std::bit_cast<std::uint64_t>(after);
    at.number = number;
  }
  // The gate's words can be seen by the GPU.
  void ready_gate(unsigned at = 0) const { gate(at).state = abi::kGateReady; }
  // A batch is queued with a number; the GPU has done all that was queued.
  void submit(unsigned slot = 0, unsigned at = 0) const { gate(at).submitted[slot] += 1; }
  void complete(unsigned at = 0) const {
    for (unsigned slot = 0; slot < abi::kProgressSlots; ++slot) {
      gate(at).done[slot] = gate(at).submitted[slot].load();
    }
  }
  // Takes credit for an allocation. False: not enough.
  bool allocate(std::uint64_t bytes, unsigned at = 0) const {
    std::uint64_t seen = lane(at).credit_bytes;
    while (seen >= bytes) {
      if (lane(at).credit_bytes.compare_exchange_weak(seen, seen - bytes)) return true;
    }
    return false;
  }
  void release(std::uint64_t bytes, unsigned at = 0) const { lane(at).credit_bytes += bytes; }
  // What the mover does, step by step: memory that may leave; on its way; gone; on its way back.
  void swappable(std::uint64_t bytes, unsigned at = 0) const {
    residency(at).total_bytes = bytes;
    residency(at).resident_bytes = bytes;
  }
  bool told_to_leave(unsigned at = 0) const { return residency(at).limited != 0; }
  // Says how far it is, in answer to the present order.
  void say(std::uint32_t phase, std::uint32_t error = abi::kSwapFine, unsigned at = 0) const {
    const std::uint32_t order = residency(at).order;
    residency(at).error = error;
    residency(at).answered = order != 0 ? order : abi::kAnswersNone;
    residency(at).phase = phase;
  }
  void leave(std::uint64_t resident, unsigned at = 0) const {
    say(abi::kLeaving, abi::kSwapFine, at);
    residency(at).resident_bytes = resident;
  }
  void be_absent(unsigned at = 0) const {
    leave(std::min<std::uint64_t>(residency(at).resident_bytes, residency(at).limit_bytes), at);
    say(abi::kAbsent, abi::kSwapFine, at);
  }
  // Its contexts have left, too, with what else it had.
  void be_detached(unsigned at = 0) const {
    be_absent(at);
    say(abi::kDetached, abi::kSwapFine, at);
  }
  void be_resident(std::uint32_t error = abi::kSwapFine, unsigned at = 0) const {
    residency(at).resident_bytes = residency(at).total_bytes.load();
    say(abi::kResident, error, at);
  }
  // What the service thread does when the doorbell rings.
  void apply_slices(unsigned at = 0, std::uint32_t status = abi::kSliceAccepted) const {
    abi::Lane& mine = lane(at);
    const std::uint32_t seq = mine.slice_seq;
    if (seq == mine.slice_applied_seq) return;
    if (status != abi::kSliceRefused) {
      mine.compute_slice_applied_us = mine.compute_slice_us.load();
      mine.copy_slice_applied_us = mine.copy_slice_us.load();
    }
    mine.slice_status = status;
    mine.slice_applied_seq = seq;
  }

 private:
  struct Written {
    std::uint32_t what, time_us, bytes;
  };
  static void write(abi::Record* ring, unsigned size, abi::Word32& count, const Written& words) {
    const std::uint32_t number = ++count;
    abi::Record& at = ring[(number - 1) % size];
    at.time_us = words.time_us;
    at.what = words.what;
    at.bytes = words.bytes;
    at.number = number;
  }

  abi::Page* page_ = nullptr;
};

}  // namespace switchyard::monitor::test
