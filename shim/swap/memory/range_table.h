// Ranges: the swappable memory of this process, by address, and the pieces that back it.
//
// Concept. A range is a piece of reserved addresses, backed by *chunks*: physical memory of its own
// each, mapped at a fixed place. A chunk's memory can be taken away and brought back without the
// application seeing another address. It is one of two things. An allocation (allocate.h, pooled.h)
// has its addresses for life. Else it is the only mapping of an allocation that the application
// made itself (vmm_allocation.h).
//
//     range    address ├── chunk 0 (32 MiB) ──┼── chunk 1 (32 MiB) ──┼── chunk 2 (the rest) ──┤
//     chunk    handle: on the device          handle 0: its copy is in `host` or `parked`, or it is
//                                              all zero
//
// A chunk that has come back keeps its copy in the host, with the digest of its contents. As long
// as the device's memory has that digest, it need not be copied again. Kept copies are the pool's
// reserve: who finds no room takes theirs.
//
// Threading: whoever reads or changes any of it holds `RangesLock`. A mover (mover.h) holds
// `ChunksLock` instead, for the whole of its move. Threads that free or allocate wait until the
// move is over, and the movers of other GPUs do not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/no_copy.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/digest_math.h"
#include "shim/swap/memory/parking.h"
#include "switchyard/wire.h"

namespace switchyard::shim::swap {

inline constexpr std::uint64_t kSmallestChunk = 2u << 20;  // what the driver maps at least
inline constexpr std::uint64_t kChunk = 32u << 20;

struct Chunk {
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;  // 0: not on the device
  pinned_pool::HostPiece host = {};         // its copy; while it is on the device, a kept one
  parking::ParkedPiece parked = {};         // its copy on another GPU, as long as it is away
  digest::Digest digest = {};               // of the copy; zeros: not known, for these have no copy
  bool zero = false;                        // away, all zero and without a copy
  bool contents_pending = false;            // on the device, but its contents aren't yet
  bool contents_queued = false;             // of these: this move has queued their copy
  int descriptor = 0;  // kept of memory that another process made (memory_fd.h); 0: it is our own
  // Memory that is mapped at its place already while it is away, for when its contents may come
  // (handover.h). Nobody's until then; 0: none.
  CUmemGenericAllocationHandle preimported = 0;
};

// A range as the application sees it.
enum class Use : std::uint8_t {
  kLive,
  kDeferredFree,  // freed, but its memory may only be given back when nothing is captured
  kEnding,        // freed, and a thread waits for the work that may still touch it
  kCached,        // freed in stream order: its pool may hand it out again (pooled.h)
  kMapped,  // the application's own mapping: no free ends it, and its chunks are the allocation's
};

// Where memory of a pool was freed: who comes later there may use it again.
struct FreePoint {
  CUevent event = nullptr;      // stands behind the free; null: nothing is to be waited for
  CUcontext context = nullptr;  // the stream's, and so the event's
  std::uint64_t stream = 0;     // its number
};

// The application's value of CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: the driver takes it of its own
// allocations alone.
enum class SyncMemops : std::uint8_t { kUnset, kOff, kOn };
void set_sync(SyncMemops& of, SyncMemops to);
// Whether it is on for any: one load.
bool any_syncs();

// A number that no other allocation or mapping of ours has or had. The driver's own are addresses
// or small: they look otherwise.
inline constexpr std::uint64_t kIdTag = 0x5359;
std::uint64_t new_id();

// No context's end frees it: what belongs to a pool, while it lives.
inline constexpr std::uint64_t kNobody = UINT64_MAX;

struct Range {
  CUdeviceptr address = 0;
  std::uint64_t asked = 0;  // what the application asked for
  std::uint64_t bytes = 0;  // rounded to kSmallestChunk: the sum of its chunks
  unsigned lane = 0;
  Use use = Use::kLive;
  std::uint64_t owner = 0;      // whose end frees it (memory/owner.h), and
  CUcontext context = nullptr;  // that it was made in; neither, if the application mapped it
  Chunk* chunks = nullptr;
  unsigned count = 0;
  CUmemAllocationProp properties = {};  // that its chunks are made with
  std::uint64_t pool = 0;               // which it belongs to; 0: none
  FreePoint freed = {};                 // of pooled memory
  std::uint64_t charged = 0;            // of what was freed and is kept aside: until it ends
  std::uint64_t id = 0;                 // of what the application was given (new_id())
  SyncMemops sync = SyncMemops::kUnset;
  // Other processes know it (ipc/exported.h): it never moves again, and the mover doesn't count it.
  bool stays = false;
  wire::Key share = {};       // by which they do, and
  std::uint32_t monitor = 0;  // whom it was told to (client.h: sharing_monitor)

  std::uint64_t key() const { return address; }
};

// The table held still.
class RangesLock : NoCopy {
 public:
  RangesLock();
  ~RangesLock();
};

// For a mover: the table held still, and the chunks of its own GPU are its to change. Not while one
// lives on the same thread.
class ChunksLock : NoCopy {
 public:
  ChunksLock();
  ~ChunksLock();
};

// pre: a RangesLock lives, or of what is only read or concerns the mover's own chunks, a
// ChunksLock, for all below.

// What follows from a change of the table but takes long, as a question to the monitor does. The
// RangesLock that lives acts on it, on its own thread, once it has let the table go.
struct Later {
  Later* next = nullptr;
  void (*act)(Later* self) = nullptr;  // `self` is its own from here on
};
void act_later(Later* later);

// All ranges, by address.
std::size_t count();
Range& at(std::size_t index);

// The range that `address` lies in, freed or not; null: none. Valid until the next add or take.
Range* find(CUdeviceptr address);

// The chunk that begins at `address`; null: none.
Chunk* chunk_at(CUdeviceptr address);

// Adds one, which the table owns from here on. False: no memory for it.
bool add(const Range& range);
// How many were taken out so far.
std::uint64_t taken_out();
// Takes one out; its chunks are the caller's, and nothing stands by for them any more.
Range take(std::size_t index);

// All chunks of the GPU, in the order in which they come back: act(chunk, address, range).
template <typename Act>
void each_chunk(unsigned lane, Act act) {
  for (std::size_t i = 0; i < count(); ++i) {
    Range& range = at(i);
    if (range.lane != lane) continue;
    CUdeviceptr address = range.address;
    for (unsigned c = 0; c < range.count; ++c) {
      act(range.chunks[c], address, range);
      address += range.chunks[c].bytes;
    }
  }
}

// Those on the device that may leave, the last ranges first, until `bytes` are told of.
template <typename Act>
void each_leaving(unsigned lane, std::uint64_t bytes, Act act) {
  std::uint64_t told = 0;
  for (std::size_t i = count(); i-- > 0;) {
    Range& range = at(i);
    if (range.lane != lane || range.stays) continue;
    CUdeviceptr address = range.address + range.bytes;
    for (unsigned c = range.count; c-- > 0;) {
      Chunk& chunk = range.chunks[c];
      address -= chunk.bytes;
      if (told >= bytes) return;
      if (chunk.handle == 0) continue;
      told += chunk.bytes;
      act(chunk, address, range);
    }
  }
}

// How much of it is on the device.
std::uint64_t resident_bytes(const Range& range);

// The properties of what stands in for cuMemAlloc's memory.
CUmemAllocationProp plain_memory(int device);

// Puts memory of the device behind a chunk, which nobody may touch before permit(). On failure
// nothing is left behind, and the driver's result says why.
CUresult bring(Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties);
// The readers and writers of memory: the device that it is of and, with `peers`, the process's
// others (peers.h).
struct Access {
  CUmemLocation location = {};
  bool peers = false;
};
Access access_of(const Range& range);
// Gives access to chunks that have been brought. One call for many: the driver may let it wait for
// another process's copies, as long as the slice that these have (about 1 ms).
CUresult permit(CUdeviceptr address, std::uint64_t bytes, const Access& access);
// Puts what is kept at home (parking.h) behind its chunk again, with its contents. On failure it is
// kept as before, and the driver's result says why.
CUresult put_back(Chunk& chunk, CUdeviceptr address, const Access& access);
// Takes it away. pre: no work that is admitted can touch it, and its contents are safe or not
// wanted. Else the driver doesn't unmap it, and all is as it was.
CUresult send_away(Chunk& chunk, CUdeviceptr address);

// Maps memory that exists already, and the descriptor that it came by, behind a chunk that is away;
// nobody may touch it before permit(). False: it can't be, and both are the caller's still.
bool preimport(Chunk& chunk, CUdeviceptr address, CUmemGenericAllocationHandle memory,
               int descriptor);
// It is the chunk's own from here on,
void accept_preimported(Chunk& chunk);
// or is given back after all.
void drop_preimported(Chunk& chunk, CUdeviceptr address);

// Gives the memory itself back, which is mapped nowhere any more. The driver's complaint.
CUresult release(Chunk& chunk);
// A descriptor of it, which is the caller's. The driver's complaint.
CUresult export_chunk(const Chunk& chunk, int& fd);

// The chunks on the GPU whose copies are kept: those that leave last come first, until `act` says
// true of one, which is the answer.
template <typename Act>
bool each_kept(unsigned lane, Act act) {
  for (std::size_t i = 0; i < count(); ++i) {
    if (at(i).lane != lane) continue;
    for (unsigned c = 0; c < at(i).count; ++c) {
      Chunk& chunk = at(i).chunks[c];
      if (chunk.handle != 0 && !chunk.contents_pending && chunk.host && act(chunk)) return true;
    }
  }
  return false;
}
// Gives back what holds a copy of its contents, wherever it is.
void drop_copies(Chunk& chunk);

// What these copies take.
std::uint64_t kept_bytes(unsigned lane);
// Whether the contents of any chunk of the GPU are not on it.
bool anything_away(unsigned lane);
// A piece of the host for a chunk that must be copied. Where the pool has none, they give way.
pinned_pool::HostPiece find_piece(unsigned lane, std::uint64_t bytes);

}  // namespace switchyard::shim::swap
