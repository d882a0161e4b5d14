#include "shim/swap/transfer/digest.h"

#include <sys/random.h>

#include "digest_ptx.h"
#include "shim/client/settings.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap {
namespace {

constexpr unsigned kThreads = 512;  // of a block: digest.cu
constexpr const char* kKernel = "switchyard_digest";

// A secret point, and what joins two pieces at it.
struct Point {
  std::uint64_t r = 0;
  std::uint64_t shift = 0;
};

enum class Trust { kUnknown, kRight, kWrong };

struct State {
  Point points[2];
  bool drawn = false;
  CUfunction kernel = nullptr;
  bool no_kernel = false;  // the driver has refused it; another try would cost milliseconds
  Trust trust = Trust::kUnknown;
};
constinit State g_states[abi::kMaxGpus];  // each its mover's own

// Each of the field's points is as likely as any other.
bool draw(Point& point) {
  do {
    if (::getrandom(&point.r, sizeof(point.r), GRND_NONBLOCK) != sizeof(point.r)) return false;
    point.r &= digest::kPrime;
  } while (point.r == digest::kPrime);
  point.shift = digest::power(point.r, digest::kPieceWords);
  return true;
}

bool draw_points(State& state) {
  if (!state.drawn) state.drawn = draw(state.points[0]) && draw(state.points[1]);
  return state.drawn;
}

bool find_kernel(State& state) {
  if (state.kernel != nullptr) return true;
  if (state.no_kernel) return false;
  const CUresult result = load_kernel(kDigestPtx, kKernel, state.kernel);
  if (result == CUDA_SUCCESS) return true;
  state.no_kernel = result != CUDA_ERROR_OUT_OF_MEMORY;
  static Once said;
  log_once(said, Level::kWarn, "swap: the driver takes no kernel of ours: all is copied (%d)",
           static_cast<int>(result));
  return false;
}

}  // namespace

Digests::Digests(unsigned lane, std::uint64_t bytes) : lane_(lane) {
  known_ = bytes != 0 && swap_digest() && g_states[lane].trust != Trust::kWrong && open(bytes);
}

Digests::~Digests() {
  if (stream_ != nullptr) driver().cuStreamSynchronize(stream_);
  for (CUevent mark : marks_) {
    if (mark != nullptr) driver().cuEventDestroy_v2(mark);
  }
  if (stream_ != nullptr) driver().cuStreamDestroy_v2(stream_);
  results_.close();
}

bool Digests::open(std::uint64_t bytes) {
  return driver().cuEventDestroy_v2 != nullptr && driver().cuStreamDestroy_v2 != nullptr &&
         draw_points(g_states[lane_]) && find_kernel(g_states[lane_]) && map_results(bytes) &&
         driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

// Bytes that no kernel has written must not look like a digest, least of all like that of zeros.
bool Digests::map_results(std::uint64_t bytes) {
  return results_.open(bytes / digest::kPieceBytes * sizeof(Digest), 0xFF);
}

void Digests::ask(CUdeviceptr address, std::uint64_t bytes) {
  if (known_ && bytes % digest::kPieceBytes != 0) give_up();
  for (std::uint64_t at = 0; known_ && at < bytes; at += digest::kPieceBytes) {
    batch_.address[asked_++ % digest::kBatch] = address + at;
    if (asked_ % digest::kBatch == 0) launch();
  }
}

void Digests::launch() {
  if (known_ && !launch_batch()) give_up();
}

bool Digests::launch_batch() {
  if (asked_ == launched_) return true;
  const std::size_t number = launched_ / digest::kBatch;
  if (number >= kMostBatches || asked_ * sizeof(Digest) > results_.bytes()) return false;
  CUdeviceptr out = results_.device() + launched_ * sizeof(Digest);
  State& state = g_states[lane_];
  void* arguments[] = {&batch_, &state.points[0].r, &state.points[1].r, &out};
  const auto blocks = static_cast<unsigned>(asked_ - launched_);
  launched_ = asked_;
  return driver().cuLaunchKernel(state.kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream_, arguments,
                                 nullptr) == CUDA_SUCCESS &&
         driver().cuEventCreate(&marks_[number], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
         driver().cuEventRecord(marks_[number], stream_) == CUDA_SUCCESS;
}

// Nothing is known any more, and no kernel reads what is about to leave.
void Digests::give_up() {
  known_ = false;
  if (stream_ != nullptr) driver().cuStreamSynchronize(stream_);
}

bool Digests::wait_for(std::size_t pieces) {
  while (done_ < pieces) {
    CUevent mark = marks_[done_ / digest::kBatch];
    if (mark == nullptr || driver().cuEventSynchronize(mark) != CUDA_SUCCESS) return false;
    done_ += digest::kBatch;
  }
  return true;
}

bool Digests::answer(std::uint64_t bytes, Digest& digest) {
  const std::size_t pieces = bytes / digest::kPieceBytes;
  first_ = {};
  if (known_ && !wait_for(answered_ + pieces)) give_up();
  if (!known_) return false;
  if (pieces != 0) first_ = result(answered_);
  const State& state = g_states[lane_];
  Digest all;
  for (const std::size_t end = answered_ + pieces; answered_ < end; ++answered_) {
    const Digest& piece = result(answered_);
    if (piece.a >= digest::kPrime || piece.b >= digest::kPrime) {
      give_up();
      return false;
    }
    all.a = digest::join(all.a, state.points[0].shift, piece.a);
    all.b = digest::join(all.b, state.points[1].shift, piece.b);
  }
  digest = all;
  return true;
}

bool Digests::trusted() const { return g_states[lane_].trust == Trust::kRight; }

void Digests::check(const Digest& said, const void* piece) const {
  State& state = g_states[lane_];
  if (state.trust != Trust::kUnknown || said == Digest{}) return;
  const auto* words = static_cast<const std::uint32_t*>(piece);
  const bool right = said.a == digest::of_words(words, digest::kPieceWords, state.points[0].r) &&
                     said.b == digest::of_words(words, digest::kPieceWords, state.points[1].r);
  state.trust = right ? Trust::kRight : Trust::kWrong;
  if (right) return;
  log_line(Level::kError, "swap: GPU %u computes digests wrongly: all is copied", lane_);
}

void clear_digests() {
  // The points stay: in the child they are as secret.
  for (State& state : g_states) {
    state.kernel = nullptr;
    state.no_kernel = false;
    state.trust = Trust::kUnknown;
  }
}
SWITCHYARD_RESET(kState, clear_digests);

}  // namespace switchyard::shim::swap
