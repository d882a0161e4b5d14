// Device memory: what backs it, and what is known of every address.
//
// Concept. A Backing is physical memory of a GPU: a piece of a memfd, committed when touched, and
// charged in the state file while it lives. It is mapped where it is needed, so a device pointer is
// a real address and kernels and copies move real bytes. Ranges remembers every allocation.
//
// Freed memory's pages are dropped, never handed out again: what was in them is nowhere any more.
// FAKECUDA_PATTERN=1 fills fresh memory with kPattern instead of zeros. FAKECUDA_PINNED=64MiB is
// all that a process may pin of the host's.
//
// Work touches memory inside a Touch, which keeps it mapped meanwhile. Work whose memory has gone,
// or that runs on a GPU without access to it, fails as on a GPU. That is an error of its context,
// never a signal. Each GPU has access to what cuMemAlloc made on any, as if peer access were
// enabled everywhere.
//
// Threading: any thread. The lock of Ranges is a leaf: nothing else is taken under it but the
// state.
#pragma once

#include <sys/mman.h>

#include <array>
#include <condition_variable>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "context.h"

namespace fakecuda {

inline constexpr std::size_t kGranularity = 2 * kMiB;
inline constexpr std::uint32_t kPattern = 0xdeadf00d;

inline std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

struct Backing {
  int gpu = 0;
  int fd = -1;  // the GPU's arena, or its own when it may be exported
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  bool owns_fd = false;
  bool charged = false;
  CUmemAllocationProp prop{};
  ~Backing();
};
using BackingRef = std::shared_ptr<Backing>;

// Null when the GPU hasn't got as much. `exportable`: it has a descriptor of its own.
// `charged`: else it takes nothing of the GPU, as memory of the host does.
BackingRef make_backing(int gpu, std::size_t bytes, bool exportable, bool charged = true);
// Maps it at `at`, or anywhere when null (aligned to 2 MiB). Null when the system refuses.
void* map_backing(const BackingRef& backing, void* at, std::size_t offset, std::size_t bytes,
                  int protection);
// Address space without memory: touching it faults.
void* reserve_addresses(std::size_t bytes, std::size_t alignment);
void unreserve_addresses(void* at, std::size_t bytes);
// These two wait for the work that is touching it now. The range must not be known any more, or be
// without access, so that no work begins to.
bool make_untouchable(void* at, std::size_t bytes);
void unmap(CUdeviceptr at, std::size_t bytes);

enum class RangeKind {
  kDevice,
  kSmall,
  kHost,
  kRegistered,
  kManaged,
  kMapped,
  kPool,
  kGraph,
  kIpc
};

// What the work of each GPU may do with memory (mmap's PROT_*).
using Access = std::array<int, kMaxGpus>;
inline Access access_for_all(int protection) {
  Access access{};
  access.fill(protection);
  return access;
}
// As the GPU of a Touch: each range is touched by the GPU that it is on, as a copy between peers
// does.
inline constexpr int kItsOwnGpu = -1;

struct Range {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  Context* context = nullptr;
  int gpu = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  BackingRef backing;
  void* pool = nullptr;
  std::size_t within = 0;  // kIpc: where in its mapping it begins
  Access access = access_for_all(PROT_READ | PROT_WRITE);
  bool retired = false;  // freed in stream order: only work that was put before may touch it
  // kMapped: the reservation that it is in, and what its handle was asked to be good for.
  CUdeviceptr reserved = 0;
  std::size_t reserved_bytes = 0;
  CUmemAllocationProp prop{};

  bool on_device() const { return kind != RangeKind::kHost && kind != RangeKind::kRegistered; }
};

// Bytes that work reads or writes.
struct Span {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  bool written = false;
};

class Ranges {
 public:
  static Ranges& all();
  void add(Range range);
  // The same for memory of the host; false: the process would have more pinned than it may.
  bool add_pinned(Range range);
  // A copy of what contains the address; false: nothing known.
  bool find(CUdeviceptr address, Range* out);
  // Removes what begins at the address.
  bool remove(CUdeviceptr start, Range* out);
  // No call finds it any more; work does until it is removed by its own thread of work.
  bool retire(CUdeviceptr start);
  void remove_retired(CUdeviceptr start);
  std::vector<Range> of_context(Context* context);
  bool overlaps(CUdeviceptr start, std::size_t bytes);
  // Of each range that begins in [start, start + bytes).
  void set_access(CUdeviceptr start, std::size_t bytes, const Access& access);
  // Whether the span lies in known ranges that follow each other without a gap, accessible or not.
  bool contain(const Span& span);

 private:
  friend class Touch;
  friend void wait_untouched(CUdeviceptr at, std::size_t bytes);
  template <typename Meets>
  bool contain_locked(const Span& span, Meets meets) const;

  std::mutex lock_;
  std::map<CUdeviceptr, Range> ranges_;
  std::list<Span> touched_;
  std::condition_variable let_go_;
  unsigned long long next_id_ = 1;
};

// Keeps memory mapped while one lives. False: some of it isn't known, or may not be accessed so by
// the GPU.
class Touch {
 public:
  explicit Touch(int gpu, std::initializer_list<Span> spans = {});
  ~Touch();
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;
  explicit operator bool() const { return ok_; }
  // One more.
  bool add(const Span& span);

 private:
  int gpu_;
  std::vector<std::list<Span>::iterator> spans_;
  bool ok_ = true;
};

// Plain device memory of a context, as cuMemAlloc makes it. 0 when out of memory.
CUdeviceptr allocate(Context* context, std::size_t bytes);
// Gives back what `allocate` made. Doesn't wait.
void release(const Range& range);
void free_memory_of(Context* context);
// The block that a small allocation is in, and where in it; null when it isn't one.
BackingRef block_of(CUdeviceptr small, std::uint64_t* within);
// cuMemFree of what came from a pool or from a graph (pool_calls.cpp).
CUresult free_pooled(const Range& range);

}  // namespace fakecuda
