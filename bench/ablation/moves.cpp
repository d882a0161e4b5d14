#include "bench/ablation/moves.h"

#include <sys/mman.h>

namespace switchyard::bench::ablation {
namespace {

constexpr unsigned kDepth = 4;

// A stream and its events, for one move.
class Lines {
 public:
  Lines() {
    CU(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : events_) CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }
  ~Lines() {
    for (CUevent event : events_) CU(cuEventDestroy, event);
    CU(cuStreamDestroy, stream_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  CUstream stream() const { return stream_; }
  void mark(unsigned at) const { CU(cuEventRecord, events_[at % kDepth], stream_); }
  void wait(unsigned at) const { CU(cuEventSynchronize, events_[at % kDepth]); }
  void wait_for_all() const { CU(cuStreamSynchronize, stream_); }

 private:
  CUstream stream_ = nullptr;
  CUevent events_[kDepth] = {};
};

}  // namespace

HostMemory::HostMemory(std::size_t bytes, Kind kind) : bytes_(bytes), kind_(kind) {
  void* raw = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    std::fprintf(stderr, "swap_ablation: the host has no %zu bytes\n", bytes);
    std::exit(1);
  }
  base_ = static_cast<unsigned char*>(raw);
  if (kind_ == Kind::kPinned) ::madvise(base_, bytes_, MADV_HUGEPAGE);
  std::memset(base_, 0, bytes_);
  if (kind_ == Kind::kPinned) CU(cuMemHostRegister, base_, bytes_, CU_MEMHOSTREGISTER_PORTABLE);
}

HostMemory::~HostMemory() {
  if (kind_ == Kind::kPinned) CU(cuMemHostUnregister, base_);
  ::munmap(base_, bytes_);
}

Copy::~Copy() {
  for (void* piece : pinned_) CU(cuMemFreeHost, piece);
}

void* Copy::to(const Chunks& chunks, unsigned at) {
  if (memory_ != nullptr) return memory_->at(chunks.offset(at));
  void* piece = nullptr;
  CU(cuMemHostAlloc, &piece, chunks.bytes(at), CU_MEMHOSTALLOC_PORTABLE);
  pinned_.push_back(piece);
  return piece;
}

const void* Copy::from(const Chunks& chunks, unsigned at) const {
  return memory_ != nullptr ? memory_->at(chunks.offset(at)) : pinned_[at];
}

double move_out(Chunks& chunks, Copy& copy, const Way& way) {
  const std::int64_t begun = now_ns();
  const Lines lines;
  unsigned landed = 0;
  const auto land = [&] {
    lines.wait(landed);
    if (!way.keeps_device) chunks.send_away(landed);
    ++landed;
  };
  for (unsigned i = 0; i < chunks.count(); ++i) {
    if (way.overlaps && i - landed == kDepth) land();
    CU(cuMemcpyDtoHAsync, copy.to(chunks, i), chunks.address(i), chunks.bytes(i), lines.stream());
    lines.mark(i);
  }
  if (!way.overlaps) lines.wait_for_all();
  while (landed < chunks.count()) land();
  return ms_since(begun);
}

double move_in(Chunks& chunks, const Copy& copy, const Way& way) {
  const std::int64_t begun = now_ns();
  const Lines lines;
  if (!way.overlaps) chunks.bring_all();
  for (unsigned i = 0; i < chunks.count(); ++i) {
    if (way.overlaps && !way.keeps_device) chunks.bring(i);
    CU(cuMemcpyHtoDAsync, chunks.address(i), copy.from(chunks, i), chunks.bytes(i), lines.stream());
  }
  lines.wait_for_all();
  return ms_since(begun);
}

}  // namespace switchyard::bench::ablation
