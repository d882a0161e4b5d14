#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "apart.h"

namespace fakecuda {
namespace {

// Up to this an allocation shares a block of 2 MiB with others, as the driver's do.
constexpr std::size_t kSmallest = 512, kLargestSmall = kMiB;
// More than any GPU has: rounding it up can't overflow.
constexpr std::size_t kMostBytes = std::size_t{1} << 46;

// One sparse memfd per GPU; offsets are never used twice, freed pieces are punched out.
struct Arena {
  std::mutex lock;
  int fd = -1;
  std::uint64_t end = 0;
};

Arena& arena_of(int gpu) {
  static Arena* arenas = new Arena[kMaxGpus];
  return arenas[gpu];
}

bool take_from_arena(Backing& backing) {
  Arena& arena = arena_of(backing.gpu);
  std::lock_guard guard(arena.lock);
  if (arena.fd < 0) arena.fd = apart(memfd_create("fakecuda-memory", MFD_CLOEXEC));
  if (arena.fd < 0) return false;
  if (ftruncate(arena.fd, static_cast<off_t>(arena.end + backing.bytes)) != 0) return false;
  backing.fd = arena.fd;
  backing.offset = arena.end;
  arena.end += backing.bytes;
  return true;
}

// With FAKECUDA_PATTERN=1 fresh memory is not zero, so that who relies on what he has not copied is
// seen. One page in sixteen: whoever reads all of it meets one, and the rest stays uncommitted.
void fill_with_pattern(const Backing& backing) {
  static const char* wanted = getenv("FAKECUDA_PATTERN");
  if (!wanted || *wanted != '1') return;
  std::array<std::uint32_t, 1024> page;
  page.fill(kPattern);
  for (std::size_t at = 0; at < backing.bytes; at += 16 * sizeof page) {
    if (pwrite(backing.fd, page.data(), sizeof page, static_cast<off_t>(backing.offset + at)) < 0) {
      return;
    }
  }
}

// Blocks of 2 MiB cut into small allocations.
struct Block {
  Context* context;
  BackingRef backing;
  std::map<std::size_t, std::size_t> holes;  // offset → bytes
};

struct SmallHeap {
  std::mutex lock;
  std::map<CUdeviceptr, Block> blocks;
};

SmallHeap& small_heap() {
  static SmallHeap* only = new SmallHeap;
  return *only;
}

CUdeviceptr take_hole(CUdeviceptr base, Block& block, std::size_t bytes) {
  for (auto hole = block.holes.begin(); hole != block.holes.end(); ++hole) {
    if (hole->second < bytes) continue;
    const auto [offset, size] = *hole;
    block.holes.erase(hole);
    if (size > bytes) block.holes[offset + bytes] = size - bytes;
    return base + offset;
  }
  return 0;
}

CUdeviceptr allocate_small(Context* context, std::size_t bytes) {
  SmallHeap& heap = small_heap();
  std::lock_guard guard(heap.lock);
  for (auto& [base, block] : heap.blocks) {
    if (block.context != context) continue;
    if (const CUdeviceptr address = take_hole(base, block, bytes)) return address;
  }
  Block block{context, make_backing(context->gpu, kGranularity, false), {{0, kGranularity}}};
  if (!block.backing) return 0;
  void* at = map_backing(block.backing, nullptr, 0, kGranularity, PROT_READ | PROT_WRITE);
  if (!at) return 0;
  const auto base = reinterpret_cast<CUdeviceptr>(at);
  return take_hole(base, heap.blocks[base] = std::move(block), bytes);
}

void release_small(const Range& range) {
  SmallHeap& heap = small_heap();
  std::lock_guard guard(heap.lock);
  auto found = heap.blocks.upper_bound(range.start);
  if (found == heap.blocks.begin()) return;
  --found;
  auto& holes = found->second.holes;
  std::size_t offset = range.start - found->first;
  std::size_t bytes = round_up(range.bytes, kSmallest);
  auto next = holes.lower_bound(offset);
  if (next != holes.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      holes.erase(before);
    }
  }
  if (next != holes.end() && offset + bytes == next->first) {
    bytes += next->second;
    holes.erase(next);
  }
  holes[offset] = bytes;
  if (bytes < kGranularity) return;
  unmap(found->first, kGranularity);
  heap.blocks.erase(found);
}

}  // namespace

Backing::~Backing() {
  if (!owns_fd && fd >= 0) {
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  }
  if (charged) driver()->state->uncharge(gpu, bytes, owns_fd ? fd : -1);
  if (owns_fd) close(fd);
}

BackingRef make_backing(int gpu, std::size_t bytes, bool exportable, bool charged) {
  if (bytes > kMostBytes) return nullptr;
  bytes = round_up(bytes, kGranularity);
  Driver* fake = driver();
  if (!fake || (charged && !fake->state->charge(gpu, bytes))) return nullptr;
  auto backing = std::make_shared<Backing>();
  backing->gpu = gpu;
  backing->bytes = bytes;
  backing->charged = charged;
  if (exportable) {
    backing->fd = apart(memfd_create("fakecuda-exportable", MFD_CLOEXEC));
    backing->owns_fd = backing->fd >= 0;
    if (backing->fd < 0 || ftruncate(backing->fd, static_cast<off_t>(bytes)) != 0) return nullptr;
  } else if (!take_from_arena(*backing)) {
    return nullptr;
  }
  fill_with_pattern(*backing);
  return backing;
}

void* reserve_addresses(std::size_t bytes, std::size_t alignment) {
  const std::size_t extra = bytes + alignment;
  void* raw = mmap(nullptr, extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(begin, alignment);
  if (aligned > begin) munmap(raw, aligned - begin);
  if (aligned + bytes < begin + extra) {
    munmap(reinterpret_cast<void*>(aligned + bytes), begin + extra - aligned - bytes);
  }
  return reinterpret_cast<void*>(aligned);
}

void unreserve_addresses(void* at, std::size_t bytes) { munmap(at, bytes); }

void wait_untouched(CUdeviceptr at, std::size_t bytes) {
  Ranges& all = Ranges::all();
  std::unique_lock held(all.lock_);
  all.let_go_.wait(held, [&] {
    return std::none_of(all.touched_.begin(), all.touched_.end(), [&](const Span& span) {
      return span.start < at + bytes && at < span.start + span.bytes;
    });
  });
}

void unmap(CUdeviceptr at, std::size_t bytes) {
  wait_untouched(at, bytes);
  munmap(reinterpret_cast<void*>(at), bytes);
}

bool make_untouchable(void* at, std::size_t bytes) {
  wait_untouched(reinterpret_cast<CUdeviceptr>(at), bytes);
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) != MAP_FAILED;
}

void* map_backing(const BackingRef& backing, void* at, std::size_t offset, std::size_t bytes,
                  int protection) {
  if (!at) at = reserve_addresses(bytes, kGranularity);
  if (!at) return nullptr;
  void* map = mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, backing->fd,
                   static_cast<off_t>(backing->offset + offset));
  if (map == MAP_FAILED) return nullptr;
  madvise(map, bytes, MADV_DONTFORK);  // a child has no device memory
  return map;
}

Ranges& Ranges::all() {
  static Ranges* only = new Ranges;
  return *only;
}

void Ranges::add(Range range) {
  std::lock_guard guard(lock_);
  range.id = next_id_++;
  ranges_[range.start] = std::move(range);
}

bool Ranges::find(CUdeviceptr address, Range* out) {
  std::lock_guard guard(lock_);
  auto found = ranges_.upper_bound(address);
  if (found == ranges_.begin()) return false;
  --found;
  if (address >= found->second.start + found->second.bytes || found->second.retired) return false;
  *out = found->second;
  return true;
}

bool Ranges::retire(CUdeviceptr start) {
  std::lock_guard guard(lock_);
  const auto found = ranges_.find(start);
  if (found == ranges_.end() || found->second.retired) return false;
  return found->second.retired = true;
}

void Ranges::remove_retired(CUdeviceptr start) {
  std::lock_guard guard(lock_);
  ranges_.erase(start);
}

bool Ranges::remove(CUdeviceptr start, Range* out) {
  std::lock_guard guard(lock_);
  const auto found = ranges_.find(start);
  if (found == ranges_.end() || found->second.retired) return false;
  *out = found->second;
  ranges_.erase(found);
  return true;
}

bool Ranges::add_pinned(Range range) {
  static const std::uint64_t most = environment_bytes("FAKECUDA_PINNED", ~std::uint64_t{0});
  std::lock_guard guard(lock_);
  std::uint64_t pinned = 0;
  for (const auto& [start, known] : ranges_) {
    if (!known.on_device()) pinned += known.bytes;
  }
  if (range.bytes > most || pinned > most - range.bytes) return false;
  range.id = next_id_++;
  ranges_[range.start] = std::move(range);
  return true;
}

std::vector<Range> Ranges::of_context(Context* context) {
  std::lock_guard guard(lock_);
  std::vector<Range> all;
  for (const auto& [start, range] : ranges_) {
    if (range.context == context) all.push_back(range);
  }
  return all;
}

bool Ranges::overlaps(CUdeviceptr start, std::size_t bytes) {
  std::lock_guard guard(lock_);
  const auto found = ranges_.lower_bound(start + bytes);
  if (found == ranges_.begin()) return false;
  const Range& before = std::prev(found)->second;
  return before.start + before.bytes > start;
}

void Ranges::set_access(CUdeviceptr start, std::size_t bytes, const Access& access) {
  std::lock_guard guard(lock_);
  const auto end = ranges_.lower_bound(start + bytes);
  for (auto it = ranges_.lower_bound(start); it != end; ++it) it->second.access = access;
}

bool Ranges::contain(const Span& span) {
  std::lock_guard guard(lock_);
  return contain_locked(span, [](const Range& range) { return !range.retired; });
}

template <typename Meets>
bool Ranges::contain_locked(const Span& span, Meets meets) const {
  if (span.bytes == 0) return true;
  const CUdeviceptr end = span.start + span.bytes;
  if (end < span.start) return false;
  auto found = ranges_.upper_bound(span.start);
  if (found == ranges_.begin()) return false;
  --found;
  for (CUdeviceptr reached = span.start; reached < end; ++found) {
    if (found == ranges_.end() || found->first > reached) return false;
    const Range& range = found->second;
    const CUdeviceptr range_end = range.start + range.bytes;
    if (reached >= range_end) return false;
    if (!meets(range)) return false;
    // Only what a program maps side by side is one to it.
    if (range_end < end && range.kind != RangeKind::kMapped) return false;
    reached = range_end;
  }
  return true;
}

Touch::Touch(int gpu, std::initializer_list<Span> spans) : gpu_(gpu) {
  for (const Span& span : spans) add(span);
}

bool Touch::add(const Span& span) {
  Ranges& all = Ranges::all();
  std::lock_guard guard(all.lock_);
  const int needed = span.written ? PROT_READ | PROT_WRITE : PROT_READ;
  ok_ = ok_ && all.contain_locked(span, [&](const Range& range) {
    const int gpu = gpu_ == kItsOwnGpu ? range.gpu : gpu_;
    return (range.access[static_cast<std::size_t>(gpu)] & needed) == needed;
  });
  if (ok_) spans_.push_back(all.touched_.insert(all.touched_.end(), span));
  return ok_;
}

Touch::~Touch() {
  Ranges& all = Ranges::all();
  {
    std::lock_guard guard(all.lock_);
    for (const auto& span : spans_) all.touched_.erase(span);
  }
  all.let_go_.notify_all();
}

CUdeviceptr allocate(Context* context, std::size_t bytes) {
  if (bytes > kMostBytes) return 0;
  Range range;
  range.bytes = bytes;
  range.context = context;
  range.gpu = context->gpu;
  if (bytes <= kLargestSmall) {
    range.kind = RangeKind::kSmall;
    range.start = allocate_small(context, round_up(bytes, kSmallest));
    if (!range.start) return 0;
  } else {
    range.backing = make_backing(context->gpu, bytes, false);
    if (!range.backing) return 0;
    void* at = map_backing(range.backing, nullptr, 0, range.backing->bytes, PROT_READ | PROT_WRITE);
    if (!at) return 0;
    range.start = reinterpret_cast<CUdeviceptr>(at);
  }
  const CUdeviceptr start = range.start;
  Ranges::all().add(std::move(range));
  return start;
}

void release(const Range& range) {
  switch (range.kind) {
    case RangeKind::kSmall:
      release_small(range);
      break;
    case RangeKind::kDevice:
    case RangeKind::kManaged:
      unmap(range.start, range.backing->bytes);
      break;
    case RangeKind::kIpc:
      unmap(range.start - range.within, range.backing->bytes);
      break;
    case RangeKind::kHost:
      unmap(range.start, round_up(range.bytes, 4096));
      break;
    default:
      break;
  }
}

BackingRef block_of(CUdeviceptr small, std::uint64_t* within) {
  SmallHeap& heap = small_heap();
  std::lock_guard guard(heap.lock);
  auto found = heap.blocks.upper_bound(small);
  if (found == heap.blocks.begin()) return nullptr;
  --found;
  if (small >= found->first + kGranularity) return nullptr;
  *within = small - found->first;
  return found->second.backing;
}

void free_memory_of(Context* context) {
  for (Range& range : Ranges::all().of_context(context)) {
    if (range.kind == RangeKind::kMapped || range.kind == RangeKind::kPool) continue;
    Range removed;
    if (Ranges::all().remove(range.start, &removed)) release(removed);
  }
}

}  // namespace fakecuda
