// The page: the shared memory between one client process (libswitchyard.so) and the monitor.
//
// Concept. The monitor makes one sealed memfd per client process, and passes it at joining. It is
// the only memory the two share, and no other process maps it, so a broken client can spoil only
// its own promises. The page has a frozen head and a directory of *sections*. One of these has a
// *lane* per GPU that the process can see. A lane is three groups of words, each on cache lines of
// its own, each with a single writer:
//
//     monitor → client   quota, slices that are wanted
//     client → monitor   what is counted: launches, copies and their bytes, memory, groups, slices
//                        in force
//     both, by CAS       credit_bytes, attention
//
// and one *gate*, below the lanes on memory pages of its own, because the GPU reads and writes it.
//
// Sections. A library and a monitor of different versions share a page, because every part of it is
// a section {id, offset, stride, count}. The library chooses the places: the launch path has them
// as constants. It lists them in its Hello (wire.h). The monitor checks them, keeps its own copy,
// and follows it. It writes those that it serves into the page, and never reads them back.
//
//     a section that the other side doesn't list is a feature that is off: its words stay zero
//     a section that is not known is skipped
//     a stride grows at its end alone: whoever has the smaller struct never looks behind it
//
// Of a library with a smaller stride than its own struct the monitor asks reaches() before it
// touches a later word. Each word's zero means "as before".
//
// Memory is accounted by *credit*. The monitor grants a client credit out of the job's quota (or
// out of memory that is not reserved). An allocation takes credit by compare-exchange before it
// calls the driver, and a free gives it back. A client uses `granted - credit`. So every death, at
// any instruction, returns exactly the grant. The monitor may take unused credit back at any time
// by the same compare-exchange. When credit is short the client asks for more on the socket
// (wire.h: kCharge), where the monitor decides.
//
//     monitor: granted += n ; credit += n            (grant)
//     client:  credit -= n  ; driver allocates n     (reserve, commit)
//     client:  driver frees n ; credit += n          (free, or roll back)
//     monitor: credit -= n  ; granted -= n           (take back, for a sibling or a lower quota)
//
// Slices: the monitor writes compute_slice_us and copy_slice_us, then slice_seq (release), then
// rings the doorbell. The client's service thread asks the driver, then publishes what is
// in force and slice_applied_seq = the slice_seq it read. The monitor raises before it lowers: it
// waits for the raised ones' slice_applied_seq before it writes a short slice anywhere.
//
// Gate: while kGateArmed stands in a lane's attention, the client puts "wait until closed is 0" and
// "write my number into done" around launches, in the stream itself. So the monitor stops queued
// work by one store, with no CPU of the client involved. While `closed` is not 0, no thread of the
// client enters the driver with new work, or to wait for work. It sleeps on that word by futex,
// which the monitor wakes after it opened. With kProgress alone only the numbers are written:
// done[i] == submitted[i] for every slot means that the GPU has nothing of this client.
//
//     monitor: closed = reasons          (close)      closed = 0 ; futex wake          (open)
//     client:  wait closed == 0 | launches ... | submitted[slot] = n, GPU: done[slot] = n
//
// Residency: the monitor says whether a swappable client may work, and if not, how much of its
// memory may be on the device meanwhile. The client works towards it. It holds its threads back and
// lets accepted work finish. It moves the excess to the host, or all of it back. It publishes what
// is there at each step, so a crash on either side leaves a valid state. The monitor lowers one
// client before it raises another.
//
//     monitor: limit_bytes = n ; limited = 1 ; ring     (out)     limited = 0 ; ring       (in)
//     client:  phase = leaving | resident_bytes falls | phase = absent | returning | resident
//
// With `limited` = kContextsToo the process's contexts leave as well, once all of its memory has:
// then its phase is detached. At any lower level they come back first.
//
// An order has a number. It changes whenever `limited` changes or limit_bytes falls. The client's
// phase and error name the order that they answer. So the monitor never takes the outcome of an
// earlier attempt for that of a new one.
//
// While its phase is absent, a client tracks limit_bytes up and down. Memory comes already as the
// limit rises, and work goes on once there is no limit. Where one leaves for another, both get the
// same number, under which memory itself can be handed over (handover.h).
//
// Moves: contexts that come back may come on another GPU. While the process is detached, the
// monitor says on which GPU the lane shall be, and then lowers `limited`. The library exchanges the
// two GPUs for all lanes of the process, so each of its lanes may have another `uuid` then. If the
// driver refuses, it comes back where it was, and its error is kSwapNotMoved. The word says where
// the lane shall be, not how to get there: followed twice it changes nothing.
//
//     monitor: machine_uuid ; shall_be_on = i + 1 ; limited = 1          client: uuid ; places += 1
//
// No host memory of the process is pinned while its contexts are away. So the monitor says before
// the move that the host pool may be unpinned: work goes on, held for a few milliseconds at a time.
// Where the memory goes by the host, it is copied there before (precopy). Memory that has changed
// since is copied again in the move. The client answers when that is done, or cannot be. It pins
// nothing between moves until the word is 0 again.
//
//     monitor: precopy, unpin = n ; limited = kContextsToo ... unpin = 0 client: unpinned = n
//
// Parking: memory that leaves may go to a GPU beside this one instead of the host, as far as the
// monitor says. park_bytes is counted in that GPU's account before the client sees it. The monitor
// lowers it when a job needs the room there; then the client moves the excess on to the host. If
// park_lane is the lane's own, memory may stay on its GPU while the contexts move to another one.
// Descriptors of the process hold it there until it follows them.
//
//     monitor: park_bytes = n ; limited = 1    client: parked_bytes rises | phase = absent
//     monitor: park_bytes = m < n ; ring       client: copies to the host | parked_bytes falls
//
// Pause: the gates hold a job that a person has paused, and the head says it, too. A monitor that
// serves no gates of this kind still says "go on" there. The service thread of the library then
// closes and opens them by the head.
//
// Communicators: which of NCCL's the process has, its rank in each, and how many operations it has
// launched there. All ranks of a communicator launch the same ones in the same order, so the counts
// tell who lags behind. A slot is free while `use` is 0; it is stored last, with release. Nobody
// looks at slots from communicators_used on: it is raised before a slot is used.
//
// Cut: the monitor asks the processes that wait for each other to stop where none of them waits. It
// writes the largest count of each communicator as its target, then `cut`. A thread stops before
// the launch of a collective when all its communicators have reached their targets; else it goes
// on. So the counts of all become equal, and what was launched everywhere ends. A process is there
// when its counts are, and nobody is in a call: `left` equals `entered`.
//
//     monitor: target = max ; cut = n          client: entered += 1 ; stop if cut and all there:
//     (a larger count: target again, n + 1)            left += 1, sleep on `cut`; else launch
//
// Records: the last collectives that the process has launched. While kRecordLaunches stands in a
// lane's attention, they are also the kernels and graphs whose class the monitor wants. By them
// people are told how many iterations a second it does, and which collective a rank lacks. Record n
// stands at (n - 1) % kRecords. Its number is 0 while it is written, and stored last. Older ones
// are lost.
//
// Timings: how long collectives ran on the GPU, and for how long the busiest stream waited for
// others, while kTimeCollectives stands in a lane's attention. The monitor says up to which of them
// the client may go on, so they cost no more than it wants. They stand in a ring like that of
// records, in which time_us is the GPU's own clock and `bytes` how long it took, in nanoseconds.
//
//     monitor: timing_until = timed + n        client: times while timed + begun < timing_until
//
// Norms: of collectives that may be gradients, what the rank sent and received, as a ring like that
// of the records. With --gradient-noise=EVERY the monitor says by which collective a step is known
// (NormOrder), and each EVERY-th one is measured. Which one that is, is told by the number of the
// collective, so all ranks measure the same without talking to each other. The others are told
// without norms until that order has stood for long. From a part of them the monitor could not see
// that it took something else for a step.
//
//     a collective of order.elements: number / stride % EVERY == 0 → measured from here on, or not
//     stride 0, or none of that size for long                      → all are measured
//
// Trust. Each side treats the other's words as hostile: copy, check, use. The size is sealed.
// Zero-filled memory is a valid page in which nothing is promised; `magic` is written last.
//
// Threading: every word is a lock-free atomic. Counters are relaxed; a sequence word is stored
// with release after what it covers and loaded with acquire before it.
//
// Changing the layout: docs/internals/abi.md. The head, the directory and the first words of each
// section never change. The head has changed once, with layout 11.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "switchyard/card.h"
#include "switchyard/collectives.h"
#include "switchyard/norms.h"
#include "switchyard/stays.h"

namespace switchyard::abi {

inline constexpr std::uint64_t kMagic = 0x4547415044595753;  // "SWYDPAGE"
// Of the head, the directory and Hello. It is the last one: what comes later comes in sections.
inline constexpr std::uint32_t kLayoutVersion = 11;
inline constexpr unsigned kMaxGpus = 16;
inline constexpr std::size_t kMemoryPageBytes = 4096;  // the GPU sees whole ones

using Word32 = std::atomic<std::uint32_t>;
using Word64 = std::atomic<std::uint64_t>;
using Word16 = std::atomic<std::uint16_t>;
static_assert(Word16::is_always_lock_free && Word32::is_always_lock_free &&
                  Word64::is_always_lock_free,
              "the page needs address-free atomics");

// Frozen for ever: any two versions can tell each other apart, and any monitor can say "go on".
struct Head {
  Word64 magic;           // kMagic, stored last with release
  Word32 layout_version;  // kLayoutVersion of the writer
  Word32 page_bytes;      // size of the sealed memfd, as the client asked for it

  // --- monitor → client ---
  Word64 heartbeat;       // grows at least four times a second while the monitor lives
  Word32 monitor_pid;     // in the monitor's PID namespace; for messages only
  Word32 lane_count;      // lanes the monitor governs, at most kMaxGpus
  Word64 pause_until_ns;  // CLOCK_MONOTONIC; a pause ends then by itself; 0: never
  Word32 paused;          // 1: a person paused it, also while memory leaves
  Word32 sections;        // entries of the directory, at most kMostSections
  std::uint8_t reserved[16];
};
static_assert(sizeof(Head) == 64 && offsetof(Head, heartbeat) == 16 && offsetof(Head, paused) == 40,
              "the head is frozen");

// A number is never used for another section. Below kMostSections.
enum class SectionId : std::uint32_t {
  kNone = 0,
  kProcess = 1,
  kCard = 2,
  kLanes = 3,
  kMemories = 4,
  kResidencies = 5,
  kGates = 6,
  kRecords = 7,
  kTimings = 8,
  kNorms = 9,
  kNormOrders = 10,
  kCommunicators = 11,
  kMadeUp = 31,  // of the versions that tests make up
};

struct Section {
  SectionId id;
  std::uint32_t offset;  // of its first element, in the page; a multiple of kSectionAlignment
  std::uint32_t stride;  // from one element to the next; a multiple of kStrideAlignment
  std::uint32_t count;

  bool operator==(const Section&) const = default;
  // Whether all of it is behind the directory and within the page.
  constexpr bool fits(std::uint64_t page_bytes) const;
};
static_assert(sizeof(Section) == 16, "the directory is frozen");
inline constexpr unsigned kMostSections = 32;
inline constexpr std::uint32_t kSectionAlignment = 64;
inline constexpr std::uint32_t kStrideAlignment = 8;
// The directory ends here, and sections begin.
inline constexpr std::uint32_t kSectionsOffset = sizeof(Head) + kMostSections * sizeof(Section);
inline constexpr std::uint32_t kMostPageBytes = 1u << 20;

// Two made-up next versions that tests build (tests/successors). One has more: words at the end of
// a residency, and a section. The other has less.
#if defined(SWITCHYARD_SUCCESSOR_MORE)
inline constexpr std::size_t kLaterBytes = 64;
#else
inline constexpr std::size_t kLaterBytes = 0;
#endif

constexpr bool Section::fits(std::uint64_t page_bytes) const {
  return offset >= kSectionsOffset && offset % kSectionAlignment == 0 && stride != 0 &&
         stride % kStrideAlignment == 0 && offset + std::uint64_t{stride} * count <= page_bytes;
}

// Bits of Lane::attention: while one is set, launches and copies take their slow path.

// Ring once; cleared by the client.
inline constexpr std::uint32_t kWakeMonitor = 1u << 0;

// Waits and numbers; the monitor's alone.
inline constexpr std::uint32_t kGateArmed = 1u << 1;

// Numbers without waits; the monitor's alone.
inline constexpr std::uint32_t kProgress = 1u << 2;

// With kProgress: keep the GPU for a moment after each burst; the monitor's alone.
inline constexpr std::uint32_t kLinger = 1u << 3;

// Work passes swap's admission; the client's alone, for good.
inline constexpr std::uint32_t kSwappable = 1u << 4;

// Time waits and bursts; launches need no slow path for it; the monitor's alone.
inline constexpr std::uint32_t kTimeBursts = 1u << 5;

// The next launch is the first since a wait, with kTimeBursts; the client's alone.
inline constexpr std::uint32_t kBurstBegins = 1u << 6;

// With kTimeBursts: ring when a wait of the CPU begins or ends, and for Gate::ring_after; the
// monitor's alone.
inline constexpr std::uint32_t kTellWaits = 1u << 7;

// Record launches (Page::records); the monitor's alone.
inline constexpr std::uint32_t kRecordLaunches = 1u << 8;

// Time collectives (Page::timings), and see which stream is the busiest; the monitor's alone.
inline constexpr std::uint32_t kTimeCollectives = 1u << 9;

// Tell by which error a context ended (Lane::fault); the monitor's alone.
inline constexpr std::uint32_t kTellFaults = 1u << 10;

// What libcuda asks for its compute groups at birth, in microseconds.
inline constexpr std::uint32_t kDefaultSliceUs = 2048;
// A slice below this is *short*. Two short slices on one GPU bring everybody to a standstill.
inline constexpr std::uint32_t kShortBelowUs = 1000;
// GPU work between two waits, where the monitor doesn't say otherwise.
inline constexpr std::uint32_t kDefaultSpacingUs = 1000;

// Bits of Gate::closed: why. The gate is open when none is left.
inline constexpr std::uint32_t kClosedByPause = 1u << 0;  // a person; outlives the monitor
inline constexpr std::uint32_t kClosedByTurn = 1u << 1;   // another's turn, or a higher class works
inline constexpr std::uint32_t kClosedByLimit = 1u << 2;  // it has had its --limit
inline constexpr std::uint32_t kClosedByGuard = 1u << 3;  // it slows a job down that has a --guard

// Of Gate::ring_after: the next wait is foreseen, so nobody rings when it begins.
inline constexpr std::uint32_t kWaitForeseen = 1u << 31;
// Of so many bursts the page keeps what they were: Gate::counts, Lane::burst_*.
inline constexpr unsigned kCountedBursts = 8;

// Gate::state
inline constexpr std::uint32_t kGateUnready = 0;  // the GPU can't see the gate (yet): only the CPU
                                                  // side is held
inline constexpr std::uint32_t kGateReady = 1;    // waits are put into streams
inline constexpr std::uint32_t kGateRefused = 2;  // the driver refused: gate_error has its result

// Lane::slice_status
inline constexpr std::uint32_t kSliceNever = 0;     // no slice was asked for yet
inline constexpr std::uint32_t kSliceAccepted = 1;  // the driver took the last one
inline constexpr std::uint32_t kSliceRefused = 2;   // it did not: slice_error has RM's status
inline constexpr std::uint32_t kSliceNoGroup = 3;   // no channel group seen (no context yet)

struct alignas(64) Lane {
  // --- monitor → client ---
  Word64 quota_bytes;        // the job's quota on this GPU; 0: none
  Word64 others_used_bytes;  // used against the same quota by the job's other processes, and by
                             // contexts and other overhead; refreshed at every grant and tick
  Word64 available_bytes;    // what the account could still grant beyond this client's credit
  Word32 compute_slice_us;   // wanted; 0: the driver's own default
  Word32 copy_slice_us;      // wanted for copy-engine groups; 0: the driver's own default
  Word32 slice_seq;          // stored with release after the two above
  // Where what the process has on this lane's GPU shall be once it is restored: `machine_uuid` of
  // lane shall_be_on - 1; 0: where it is. See "Moves".
  Word32 shall_be_on;
  // GPU i of the machine, in lane i, whatever GPU that lane is of; zeroes: there is no GPU i.
  Word64 machine_uuid[2];
  Word32 unpin;  // the host pool may be unpinned: the number of this request; 0: pinned again
  // 1: the memory goes by the host, so it is copied there before that; stored before `unpin`
  Word32 precopy;

  // --- both, by compare-exchange ---
  alignas(64) Word64 credit_bytes;
  std::uint8_t reserved_shared[56];

  // --- client → monitor, hot: one cache line is all that a launch touches here ---
  alignas(64) Word64 launches;  // kernel launches of every kind
  Word64 graph_launches;
  Word64 copies;     // memory copies and sets, asynchronous or not
  Word32 attention;  // bits above; set by the monitor (seldom), kWakeMonitor cleared by the client
  // 0: the library or its driver can't move the process; else grows with each move: `uuid` is
  // another then. Stored with release after `uuid`
  Word32 places;
  // Bytes that copies have moved, as far as their calls say so: between the GPU and the host or
  // another GPU, and inside the GPU. Without copies in graphs and by kernels. Sets move nothing.
  Word64 link_bytes;
  Word64 device_bytes;
  Word32 unpinned;   // the `unpin` that is done, as far as it can be; kAnswersNone; 0: the library
                     // doesn't know of it
  Word32 precopies;  // 1: it knows of `precopy`
  Word32 fault;      // with kTellFaults: the CUresult by which a context ended; 0: none did
  std::uint8_t reserved_hot[4];

  // --- client → monitor, cold ---
  alignas(64) std::uint8_t uuid[16];  // cuDeviceGetUuid_v2; valid once in_use is 1
  Word32 in_use;                      // 1: this lane names a GPU; stored with release
  Word32 contexts;                    // live contexts of this process on this GPU
  Word32 compute_groups;              // live compute channel groups (TSGs)
  Word32 copy_groups;                 // live copy-engine channel groups
  Word32 slice_applied_seq;           // the slice_seq whose slices are in force
  Word32 compute_slice_applied_us;    // in force; 0: the driver's own default
  Word32 copy_slice_applied_us;
  Word32 slice_status;  // kSlice* above
  Word32 slice_error;   // RM status or errno of the last refusal
  Word32 slice_calls;   // slice requests that the driver accepted
  Word64 used_bytes;    // charged now, by the client's own ledger
  Word64 refusals;      // allocations refused because of the quota
  Word64 peak_bytes;    // the largest used_bytes so far
  Word32 under_mps;     // 1: the driver says so (CU_DEVICE_ATTRIBUTE_MPS_ENABLED)
  // Of burst n (as Gate::bursts counts) at n % kCountedBursts, in microseconds and at most 65,535.
  // The CPU worked for the first, at least 1, and waited for the second. Not of a burst that counts
  // for nothing.
  Word16 burst_cpu_us[kCountedBursts];
  Word16 burst_waited_us[kCountedBursts];
  Word32 parked_lane;   // the lane, and 1, of the GPU on which memory of this one is parked
  Word64 parked_bytes;  // what is there: raised before it comes, lowered after it left
};
static_assert(sizeof(Lane) == 64 * 5 && alignof(Lane) == 64,
              "a section's words never move: see docs/internals/abi.md");
static_assert(offsetof(Lane, credit_bytes) == 64 && offsetof(Lane, launches) == 128 &&
                  offsetof(Lane, link_bytes) == 160 && offsetof(Lane, uuid) == 192,
              "each writer has cache lines of its own");

inline constexpr unsigned kProgressSlots = 16;  // streams share them when there are more

struct alignas(64) Gate {
  // --- monitor → client and its GPU work ---
  Word32 closed;          // kClosed* bits; 0: open. A futex word.
  Word32 spacing_us;      // GPU work that may stand between two waits; 0: kDefaultSpacingUs
  Word64 pause_until_ns;  // CLOCK_MONOTONIC; a pause ends then by itself; 0: never
  Word32 ring_after;  // with kTellWaits: ring once with so many launches since the last wait; 0:
                      // for none. The highest bit is kWaitForeseen
  // 1: a person paused it, also while `closed` is 0 because its memory leaves. 0: an older monitor
  // may have, and says so in `closed` alone.
  Word32 paused;
  std::uint8_t reserved_monitor[40];

  // --- client → monitor ---
  alignas(64) Word32 state;  // kGate* above
  Word32 gate_error;         // CUresult of the refusal
  Word32 held_threads;       // threads that sleep before the closed gate now
  Word32 lingered;           // what lingering writes: the GPU's own
  Word32 waits;              // waits that were put into streams
  // The words from here on are counted while kTimeBursts stands in `attention`. A burst goes from
  // the first launch after a wait of the CPU to the end of the next wait; `waited_ns` is in
  // `burst_ns`.
  Word32 bursts;
  Word64 waited_ns;  // for which the CPU waited for the GPU
  Word64 burst_ns;
  Word32 launched;  // the low half of all launches, graphs too, when the last wait ended
  Word32 waiting;   // 1: a thread waits now
  // The launches of burst n (as `bursts` counts) at n % kCountedBursts, at least 1.
  Word16 counts[kCountedBursts];

  // --- client → monitor, then GPU → monitor: numbers per slot, equal when done; `done` grows ---
  alignas(64) Word32 submitted[kProgressSlots];
  alignas(64) Word32 done[kProgressSlots];
};
static_assert(sizeof(Gate) == 256 && offsetof(Gate, bursts) == 84 &&
                  offsetof(Gate, submitted) == 128 && offsetof(Gate, done) == 192,
              "a section's words never move: see docs/internals/abi.md");

// Residency::phase
inline constexpr std::uint32_t kResident = 0;  // all of it is on the device, and work is admitted
inline constexpr std::uint32_t kLeaving = 1;   // work is held, what was accepted is finished or
                                               // has been, and memory leaves. Its gate must be open
inline constexpr std::uint32_t kAbsent = 2;    // work is held; what is there follows limit_bytes
inline constexpr std::uint32_t kReturning = 3;  // work is held; memory comes back
inline constexpr std::uint32_t kDetached = 4;  // as kAbsent, and its contexts are away, too: it has
                                               // nothing on its GPUs

// Residency::limited
inline constexpr std::uint32_t kUnlimited = 0;    // all may be there, and work goes on
inline constexpr std::uint32_t kLimited = 1;      // work is held, and limit_bytes holds
inline constexpr std::uint32_t kContextsToo = 2;  // the same, and the contexts are to leave as well

// Residency::error: why the last move did not come to its end; kSwapFine once one did.
inline constexpr std::uint32_t kSwapFine = 0;
inline constexpr std::uint32_t kSwapBusy = 1;        // the accepted work did not end in time
inline constexpr std::uint32_t kSwapNoHostRoom = 2;  // the host has no room, or no more is allowed
inline constexpr std::uint32_t kSwapNoDeviceRoom = 3;  // the device has no room (yet): it waits
inline constexpr std::uint32_t kSwapFailed = 4;        // a call of the driver failed: swap_result
inline constexpr std::uint32_t kSwapContextsStay = 5;  // the driver did not take the contexts, or
                                                       // could not be asked to: swap_result
inline constexpr std::uint32_t kSwapNotMoved = 6;  // its contexts are back, on the GPU where they
                                                   // were: the driver refused another, swap_result
inline constexpr std::uint32_t kSwapNoPeerRoom = 7;  // with park_only: park_bytes are not enough

// Residency::answered: phase and error are from before this page. No order has this number.
inline constexpr std::uint32_t kAnswersNone = ~0u;

struct alignas(64) Residency {
  // --- monitor → client ---
  Word32 limited;      // kUnlimited and so on
  Word32 order;        // its number, stored with release after both; 0: none was given on this page
  Word64 limit_bytes;  // swappable memory that may be on the device
  // Pinned memory of the host that the client may keep for this GPU: its share. Memory beyond that
  // is lacking elsewhere: the client gives it back as it can.
  Word64 host_limit_bytes;
  Word64 gives;  // the hand-over that what leaves is offered in; 0: nobody waits for it
  Word64 takes;  // the one that it may take from; 0: none
  // That will leave in `gives` shortly: it may be offered already, while work goes on. 0: what has
  // to leave is known by the limit.
  Word64 soon_bytes;
  // So much of what leaves may be parked on the GPU of lane `park_lane` - 1 (0: nowhere). Memory
  // that is parked beyond that moves on to the host.
  Word64 park_bytes;
  Word32 park_lane;
  Word32 park_only;  // 1: what finds no room there stays, as it does where the host has none

  // --- client → monitor ---
  alignas(64) Word32 phase;  // kResident and so on
  Word32 error;              // kSwap* above
  Word32 swap_result;        // CUresult of the call that failed, with kSwapFailed
  Word32 held_threads;       // threads that sleep at swap's admission now
  Word64 total_bytes;        // swappable memory, wherever it is
  Word64 resident_bytes;  // of that, on the device: raised before it comes, lowered after it left
  Word64 host_bytes;      // pinned memory of the host, in use or not
  Word64 moved_bytes;     // copied in either direction so far (by direction: Memory)
  Word32 moves;           // moves that came to their end
  Word32 answered;        // the order that phase and error answer; kAnswersNone; 0: the library
                          // doesn't know of numbers
  Word64 taken_bytes;     // of what came, in memory that another client handed over
  alignas(64) std::uint8_t later[kLaterBytes];
};
static_assert(sizeof(Residency) == 128 + kLaterBytes && offsetof(Residency, phase) == 64,
              "a section's words never move: see docs/internals/abi.md");

// Memory::contexts: whether the driver can take the contexts of the process off the GPU.
inline constexpr std::uint32_t kContextsUnknown = 0;   // an older library, or nothing can leave
inline constexpr std::uint32_t kContextsMayLeave = 1;  // it can
inline constexpr std::uint32_t kContextsNoCalls = 2;   // it has no checkpoint

inline constexpr unsigned kMostStays = 16;
static_assert(kStays <= kMostStays, "no word is left for another reason");

// What a client tells people of its memory on a GPU. The monitor decides by it only what it refuses
// to begin with this client.
struct alignas(32) Memory {
  // --- client → monitor ---
  Word64 stays_bytes[kMostStays];  // that can't leave the device now, by reason (stays.h)
  Word64 moved_out_bytes;          // copied to the host so far,
  Word64 moved_in_bytes;           // and back
  Word64 spared_bytes;  // that left or came without a copy: unchanged since the last time, or zero
  Word32 times_out;     // how often work was held and what had to leave had left
  Word32 contexts;      // kContextsUnknown and so on
};
static_assert(sizeof(Memory) == 160, "a section's words never move: see docs/internals/abi.md");

inline constexpr unsigned kMostCommunicators = 1024;
inline constexpr unsigned kMostCollectives = 11;
static_assert(static_cast<unsigned>(Collective::kEnd) <= kMostCollectives,
              "no word is left for another kind");

// One communicator of the client (collectives.h).
struct alignas(64) Communicator {
  // --- client → monitor ---
  Word64 id;         // the same for all ranks, never 0
  Word32 use;        // 0: the slot is free; else its lane + 1
  Word32 rank;       // of this client
  Word32 ranks;      // how many there are; 0: not known yet
  Word32 last_kind;  // of the last operation (switchyard/collectives.h); 0: there was none
  // Operations that were launched, also by graphs: counted before NCCL is called. Sends and
  // receives count where there are two ranks: else ranks differ in them.
  Word64 launched;
  Word64 bytes;       // of all operations
  Word64 last_bytes;  // of the last
  Word64 last_ns;     // CLOCK_MONOTONIC: when it was launched
  Word32 sent;        // sends and receives, where they are not in `launched`

  // --- monitor → client ---
  Word32 target;  // while Page::cut isn't 0: the low half of `launched` at which it may stop
};
static_assert(sizeof(Communicator) == 64 && offsetof(Communicator, launched) == 24,
              "a section's words never move: see docs/internals/abi.md");

inline constexpr unsigned kRecords = 512;

// One collective, or one kernel or graph that was launched.
struct Record {
  Word32 number;   // 0: it is being written
  Word32 time_us;  // CLOCK_MONOTONIC, the low half
  Word32 what;     // below
  Word32 bytes;    // of the collective's buffer, at most kMostRecordedBytes
};
static_assert(sizeof(Record) == 16, "a section's words never move: see docs/internals/abi.md");
inline constexpr std::uint32_t kMostRecordedBytes = ~0u;

// Record::what of a launch: this bit, and a hash of what is launched. The low byte is its class.
inline constexpr std::uint32_t kLaunchRecord = 1u << 31;
inline constexpr unsigned kLaunchClasses = 256;
// Of a collective: its communicator's slot, its kind, and the low bits of `launched` with it.
inline constexpr std::uint32_t kRecordedCounts = 1u << 17;
inline constexpr std::uint32_t kRecordedKinds = 16;
static_assert(kMostCommunicators * kRecordedKinds * std::uint64_t{kRecordedCounts} ==
                      kLaunchRecord &&
                  kMostCollectives <= kRecordedKinds,
              "a record has no room for it");
constexpr std::uint32_t collective_record(unsigned slot, std::uint32_t kind,
                                          std::uint64_t launched) {
  return (slot * kRecordedKinds + kind) * kRecordedCounts +
         static_cast<std::uint32_t>(launched % kRecordedCounts);
}

inline constexpr unsigned kTimings = 256;

// Record::what of a timing: that of the collective's record, or of something else of a lane.
enum class TimingMark : std::uint32_t {
  kStalled = 1,  // the busiest stream waited for another, or was busy with a collective itself
  kUntimed = 2,  // between the timings before and behind it something was not timed
  kGraph = 3,    // a graph with collectives was launched: they are not timed one by one
  kRefused = 4,  // the driver refused to time
};
inline constexpr std::uint32_t kTimingMarks = 256;
constexpr std::uint32_t timing_mark(unsigned lane, TimingMark mark) {
  return kLaunchRecord | (lane * kTimingMarks + static_cast<std::uint32_t>(mark));
}
// One collective that may be a gradient's. Both norms are known, or its step is not measured.
struct Norm {
  Word32 number;    // 0: it is being written
  Word32 what;      // norm_record()
  Word64 launched;  // its number in the communicator
  Word64 elements;  // of the whole gradient
  Word64 before;    // the squared norm of what was sent, the bits of a double,
  Word64 after;     // and of what was received
};
inline constexpr unsigned kNorms = 256;
inline constexpr std::uint64_t kNotMeasured = 0x7FF8'0000'0000'0000;  // a NaN, for both norms
static_assert(sizeof(Norm) == 40, "a section's words never move: see docs/internals/abi.md");

// Norm::what: its communicator's slot, and how the result relates to what was sent.
inline constexpr std::uint32_t kNormSummed = 1u << 16;     // not averaged
inline constexpr std::uint32_t kNormScattered = 1u << 17;  // each rank has a part of the result

// By which collective of a communicator a step is known; the monitor's. Zeroes: by none (yet).
struct NormOrder {
  Word64 elements;
  Word32 stride;  // operations from one step to the next; stored with release after `elements`
  std::uint8_t reserved[4];
};

static_assert(static_cast<unsigned>(Unmeasured::kEnd) <= 32, "no bit is left for another reason");

// The words for the process as a whole.
struct alignas(64) Process {
  // --- monitor → client ---
  Word32 cut;           // 0: none is asked for; else it changes with every target. A futex word
  Word32 timing_until;  // see "Timings"
  Word64 recorded_classes[kLaunchClasses / 64];  // a bit for each class of launches

  // --- client → monitor ---
  alignas(64) Word64 entered;  // launches of collectives that have begun, in calls of NCCL and by
  Word64 left;                 // graphs, and that have returned; both only grow
  // Operations that were launched, by kind (collectives.h), kNone's not used; and their bytes.
  Word32 collectives[kMostCollectives];
  Word32 recorded;  // how many records there were, the one that is being written with them
  Word64 collective_bytes[kMostCollectives];
  Word32 timed;               // how many timings there were, as `recorded`
  Word32 normed;              // and norms
  Word32 unmeasured;          // why collectives were not measured: a bit for each reason (norms.h)
  Word32 unwatched;           // communicators that live and have no slot
  Word32 communicators_used;  // slots that may be in use: those before it; never lowered
  Word32 stopped;             // threads that sleep at the cut now
  // The kernel's number of the thread that launched the last collective, as the client's PID
  // namespace has it; 0: none has.
  Word32 launching_thread;
};
static_assert(sizeof(Process) == 256 && offsetof(Process, entered) == 64 &&
                  offsetof(Process, collective_bytes) == 128,
              "a section's words never move: see docs/internals/abi.md");

// The job, as the monitor understands it now: a card as text (card.h). Written by the monitor,
// before `magic` and at every `set` (seq odd while it writes). The client says it again when it
// joins anew, so that a restarted monitor rebuilds its roster from what the clients say.
struct alignas(64) Card {
  Word32 seq;
  std::uint8_t reserved[60];
  char text[kCardBytes];
};
static_assert(sizeof(Card) == 1088 && offsetof(Card, text) == 64,
              "a section's words never move: see docs/internals/abi.md");

// The page as this version's library has it. The monitor follows what each library lists.
struct Page {
  Head head;
  Section directory[kMostSections];  // the monitor's; see "Sections"
  Process process;
  Card card;
  Word64 made_up[16];
  Lane lanes[kMaxGpus];
  Memory memories[kMaxGpus];  // memory i belongs to lane i, and so on
  Residency residencies[kMaxGpus];
  std::uint8_t reserved_before_gates[512 + (kLaterBytes != 0 ? 3072 : 0)];
  // Memory pages of their own, for the GPU sees them. Not alignas: a mapping begins at any of them.
  Gate gates[kMaxGpus];
  Record records[kRecords];
  Record timings[kTimings];
  Norm norms[kNorms];
  NormOrder norm_orders[kMostCommunicators];       // monitor → client
  Communicator communicators[kMostCommunicators];  // last: few of the memory's pages are touched
  std::uint8_t reserved_last[2048];
};

inline constexpr std::uint32_t kPageBytes = sizeof(Page);
inline constexpr std::uint32_t kGatesOffset = offsetof(Page, gates);
inline constexpr std::uint32_t kGatesBytes = sizeof(Page::gates);
static_assert(offsetof(Page, process) == kSectionsOffset && offsetof(Page, lanes) == 2048 &&
                  kGatesOffset % kMemoryPageBytes == 0 && kGatesBytes % kMemoryPageBytes == 0 &&
                  kPageBytes == (kLaterBytes != 0 ? 124 : 120) * 1024,
              "the library's page: whole pages of memory, and the GPU sees gates alone");

// What the library lists in its Hello: the places of its page.
inline constexpr Section kSections[] = {
#define SWITCHYARD_SECTION(id, field, elements) \
  { SectionId::id, offsetof(Page, field), sizeof(Page::field) / (elements), (elements) }
    SWITCHYARD_SECTION(kProcess, process, 1),
    SWITCHYARD_SECTION(kCard, card, 1),
    SWITCHYARD_SECTION(kLanes, lanes, kMaxGpus),
    SWITCHYARD_SECTION(kMemories, memories, kMaxGpus),
    SWITCHYARD_SECTION(kResidencies, residencies, kMaxGpus),
    SWITCHYARD_SECTION(kGates, gates, kMaxGpus),
    SWITCHYARD_SECTION(kRecords, records, kRecords),
    SWITCHYARD_SECTION(kTimings, timings, kTimings),
    SWITCHYARD_SECTION(kCommunicators, communicators, kMostCommunicators),
#if !defined(SWITCHYARD_SUCCESSOR_FEWER)
    SWITCHYARD_SECTION(kNorms, norms, kNorms),
    SWITCHYARD_SECTION(kNormOrders, norm_orders, kMostCommunicators),
#endif
#if defined(SWITCHYARD_SUCCESSOR_MORE)
    SWITCHYARD_SECTION(kMadeUp, made_up, 16),
#endif
#undef SWITCHYARD_SECTION
};
constexpr bool all_fit() {
  for (const Section& each : kSections) {
    if (!each.fits(kPageBytes)) return false;
  }
  return std::size(kSections) <= kMostSections;
}
static_assert(all_fit(), "each section is aligned, and within the page");

}  // namespace switchyard::abi
