// The wire: frames on the monitor's unix stream socket, for shims (binary) and tools (JSON).
//
// Concept. A frame is a FrameHeader and `length` bytes. A shim speaks first with kHello; a tool
// sends kJson frames. Every request is answered by exactly one frame with the same id, in order.
// The kernel closing the socket is the detach. SO_PEERCRED and a pidfd tell the monitor who the
// peer really is, so nothing here carries identity that is trusted.
//
//   shim                          monitor
//     kHello (card, GPUs, use) →
//                                ← kWelcome + SCM_RIGHTS {page memfd, doorbell, wake}
//                                  or kRefused (text)
//     kCharge (lane, bytes)    →
//                                ← kCharged (verdict; credit is already in the page)
//     kRefresh (lane)          →   contexts came or went: measure the overhead anew
//                                ← kCharged
//     kShare (key, first, total; SCM_RIGHTS: descriptors first, first + 1, ... of total)
//                              →   memory that others may open, in as many frames as it takes
//                                ← kShared (verdict)
//     kOpenShared (key, first) →
//                                ← kShared (verdict, total, count) + SCM_RIGHTS {count of them,
//                                  from `first` on}: ask again from first + count, up to total
//     kEndShare (key)          →   nobody shall open it any more
//                                ← kShared
//
// `doorbell`: monitor → client's service thread: look at the page. `wake`: client → monitor: look
// at the page. Neither carries data. Each is one end of a datagram socket pair, non-blocking; older
// monitors send eventfds. So a client reads and writes 8 bytes, and takes EAGAIN for done.
//
// JSON requests are objects with "op". Replies have "ok": true and the listing, or "ok": false,
// "code": an ExitCode, and "error". That is one line that says what was tried, on what, and what to
// do.
//   {"op":"version"}
//   {"op":"status"}                     → "monitor", "gpus"
//   {"op":"ps","after"?:0}              → "jobs", "outside". With "after" some of the jobs: while
//                                         there are more, "more_after" stands in place of
//                                         "outside": ask again with its value. States and sums of
//                                         all parts are as of the first. Without "after" a listing
//                                         that no frame takes is refused.
//                                         With "brief" jobs have what the table of `ps` shows alone
//                                         With "latency" a job of priority high has "burst_waits":
//                                         waits of its bursts for the GPU since anybody asked so
//                                         first, "sum_seconds" and "buckets"
//                                         Of each job's "gpus":
//                                         "memory_used_bytes" is "memory_overhead_bytes" (contexts,
//                                         modules), "memory_swappable_bytes", wherever these are,
//                                         and "memory_stays_bytes": an object of bytes by the
//                                         reason why they stay (stays.h), without zeros; but what
//                                         is "ipc_imported" is used by whoever made it.
//                                         "swap_moved_out_bytes", "swap_moved_in_bytes" were
//                                         copied so far, "swap_spared_bytes" moved without a copy,
//                                         "swap_taken_over_bytes" came in memory that another job
//                                         handed over (handover.h),
//                                         "swap_times_out" times
//   {"op":"events","since"?:N,"seconds"?:S,"target"?:NAME}
//                                       → "events" with a number above N, of the last S seconds,
//                                         of one job; so many as one answer takes. "last": the N
//                                         to ask with next, at once if "more". "lost": how many
//                                         behind N were forgotten before they were read
//   {"op":"past events","seconds":S,"target"?:NAME,"after"?:0}
//                                       → "events" of the last S seconds that the history has, of
//                                         earlier monitors, too; "more_after" as with "ps", and
//                                         in the first part "lost". In the last part "last": the
//                                         number of this monitor's newest event there, for
//                                         "since" of "events"
//   {"op":"timeline","of":"words"}      → "now_ns" and "started_ns" on the monitor's clock;
//                                         "kinds", "states", "reasons" by their codes; and "gpus"
//   {"op":"timeline","of":"jobs","after"?:0}
//                                       → "jobs" that records may be about, by "key". Of a living
//                                         one "state" and "gpus": [gpu, state], where a state is
//                                         [state, reason, by]; and "gates": [gpu, pid, closed].
//                                         "more_after" as with "ps"
//   {"op":"timeline","of":"turns"|"changes"|"samples","since"?:N,"seconds"?:S}
//                                       → "records", "last", "lost", "more" as with "events";
//                                         "users": names by uid. One of turns and changes is
//                                         [at_ns, kind, job, by, gpu, pid, uid, value, state,
//                                         reason, state before, reason before]. One of samples is
//                                         [at_ns, job, gpu, memory bytes, share in 1/10000 or -1,
//                                         processes at work, held threads, launches]. A gpu is
//                                         1 + its place in "gpus"; 0: all of them, or none
//   {"op":"create","pid":P,"card":{..},"cuda_visible_devices"?}
//                                       → "job", "name": reserves the quota for a job to come, on
//                                         the GPUs that it will see; the job lives while P lives or
//                                         a client of it is attached
//   {"op":"set","target":NAME,"priority"?,"share"?,"limit"?,"deadline"?,"memory"?}
//                                       → the job as `ps` lists it, and "before": what the named
//                                         settings were, as text
//   {"op":"pause","target":NAME,"timeout_seconds"?,"release"?:true}
//                                       → the job, once no kernel of it is known to run, or after a
//                                         second. Its "drained", in "ps" too:
//                                         true, false, or null: work of it was queued uncounted.
//                                         With "release" its memory leaves the device, too: the
//                                         answer comes when it has, or with the reason why not
//   {"op":"resume","target":NAME}       → the job; what had left the device comes back first
//   {"op":"swap-out","target":NAME}     → the job, once its swappable memory has left the device
//   {"op":"swap-in","target":NAME}      → the job, once it is back
//   {"op":"migrate","target":NAME,"to":INDEX-OR-UUID}
//                                       → the job, once it is at work on that GPU; or the reason
//                                         why it is where it was
//   {"op":"policy","policy"?:"priority"|"fair"|"exclusive"|"deadline","minimum"?}
//                                       → what is in force; without "policy" it only tells
//   {"op":"means","means":"auto"|"slice"|"gate"|"none"} → by what the policy is enforced
//   {"op":"report","by"?:"job"|"user"|"gpu"|"day","since"?,"until"?,"after"?,
//    "jobs"?:{"ids"?,"users"?}}
//                                       → "rows": sums of the history (monitor/history), between
//                                         two times in seconds since 1970. Jobs come in parts, as
//                                         with "ps"
//   {"op":"stop","force"?:true}         → "pid": the monitor ends at once. With jobs only by force
//
// Shared memory: a client hands over descriptors of its device memory under a key that it chose by
// chance. It tells the key to other processes as it likes. Only its own user's clients are given
// them, and only once all have come. They go when the client ends the share, or goes itself; who
// has opened them keeps the memory. A monitor that knows of it says so in Welcome::features.
//
// Growing. A payload grows at its end alone. A reader takes what it knows of a longer one, and
// zeroes for the end of a shorter one, which mean "as before". Shorter than in version 0.2.0 is
// none. An unknown kind of frame from a shim ends its connection, so a shim sends one only to a
// monitor whose Welcome::features name it.
//
// Trust: lengths and texts are checked by the reader; a frame over kMaxFrame closes the socket.
//
// Threading: plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "switchyard/abi.h"
#include "switchyard/card.h"

namespace switchyard::wire {

inline constexpr std::uint32_t kMagic = 0x31445753;  // "SWD1"
inline constexpr std::uint32_t kMaxFrame = 1u << 20;

enum Kind : std::uint32_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,  // payload: text, not zero-terminated
  kCharge = 4,
  kCharged = 5,
  kRefresh = 6,
  kShare = 7,
  kOpenShared = 8,
  kEndShare = 9,
  kShared = 10,
  kJson = 16,
};

struct FrameHeader {
  std::uint32_t magic;   // kMagic
  std::uint32_t kind;    // Kind
  std::uint32_t length;  // of the payload, at most kMaxFrame; older monitors exceed it with "ps"
  std::uint32_t id;      // chosen by the asker, returned in the answer
};
static_assert(sizeof(FrameHeader) == 16);

// Hello::flags
inline constexpr std::uint32_t kObserver = 1u << 0;  // NVML only: sees the quota, isn't charged
inline constexpr std::uint32_t kRejoin = 1u << 1;    // was a client of a monitor that went away

struct Hello {
  std::uint32_t layout_version;  // abi::kLayoutVersion
  std::uint32_t flags;
  std::uint32_t pid;         // in the client's own PID namespace; for messages only
  std::uint32_t lane_count;  // GPUs listed; lane i of the page is GPU i here
  // What the library understands beyond its sections, a bit for each; none is defined yet.
  std::uint32_t features;
  std::uint32_t page_bytes;     // of the page that it wants; whole pages of memory
  std::uint32_t section_count;  // of `sections`: the page's parts, at the places that it has them
  // kRejoin: what a person had done when the last monitor went away.
  std::uint32_t paused;          // 1: paused
  std::uint64_t pause_until_ns;  // CLOCK_MONOTONIC; 0: without a time-out
  char process[64];              // /proc/self/comm, for listings
  CardText card;                 // from the environment, or from the old page when kRejoin
  std::uint8_t uuid[abi::kMaxGpus][16];
  std::uint64_t used_bytes[abi::kMaxGpus];  // charged already (kRejoin)
  abi::Section sections[abi::kMostSections];
};
static_assert(sizeof(Hello) == 40 + 64 + kCardBytes + abi::kMaxGpus * 24 + abi::kMostSections * 16,
              "a frame grows at its end alone");

// Welcome::features
inline constexpr std::uint32_t kSharesMemory = 1u << 0;  // kShare and its like
// The job was made with other settings than the card of this Hello has.
inline constexpr std::uint32_t kOtherSettings = 1u << 1;

struct Welcome {
  std::uint32_t layout_version;
  std::uint32_t page_bytes;
  std::uint32_t monitor_pid;
  std::uint32_t features;
};
static_assert(sizeof(Welcome) == 16, "a frame grows at its end alone");

// kCharge and kRefresh
struct Charge {
  std::uint32_t lane;
  std::uint32_t reserved;
  std::uint64_t bytes;  // wanted in credit; 0 with kRefresh
};
static_assert(sizeof(Charge) == 16, "a frame grows at its end alone");

enum Verdict : std::uint32_t {
  kGranted = 0,     // credit_bytes holds at least what was asked for (until somebody takes it)
  kOverQuota = 1,   // the job's quota does not have it
  kGpuFull = 2,     // no quota, and what is not reserved does not have it
  kWait = 3,        // the job asked to wait: ask again in 100 ms, or as `lacks` says
  kWaitsInVain = 4  // every holder waits too, or the time-out is over: fail now
};

// What a refusal lacked, for the message in the program; or what a wait is for. Older monitors say
// 0.
enum Lacks : std::uint32_t {
  kDeviceLacks = 0,    // the GPU or the quota, as the verdict says
  kHostPoolLacks = 1,  // jobs that take turns on the GPU need a larger host pool to swap out
  kParkedMakesWay = 2  // kWait: parked memory leaves, a chunk each millisecond: ask again in 5 ms
};

struct Charged {
  std::uint32_t verdict;
  std::uint32_t lacks;            // Lacks; 0 where memory is granted
  std::uint64_t granted_bytes;    // added to credit by this answer
  std::uint64_t available_bytes;  // what the account still has
};
static_assert(sizeof(Charged) == 24);

// What comes with one frame at most. The kernel takes 253.
inline constexpr std::uint32_t kMostDescriptors = 64;

struct Key {
  std::uint64_t words[2];
};
inline bool operator==(const Key& a, const Key& b) {
  return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

// kShare, kOpenShared and kEndShare
struct Share {
  Key key;
  std::uint32_t first;  // of the descriptors that come along, or are asked for; 0 with kEndShare
  std::uint32_t total;  // descriptors of the whole; 0 but with kShare
};

enum ShareVerdict : std::uint32_t {
  kTaken = 0,          // done
  kNoSuchShare = 1,    // nothing that this user may open has the key, or not all of it has come
  kNoRoomToShare = 2,  // the monitor holds as many descriptors as it may
  kBadShare = 3,       // these descriptors under this key make no sense; nothing of it is kept
};

struct Shared {
  std::uint32_t verdict;
  std::uint32_t total;  // descriptors of the whole, and how many of them come along, from `first`
  std::uint32_t count;  // on; both 0 but with kOpenShared
  std::uint32_t reserved;
};

}  // namespace switchyard::wire
