#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "shim/client/client.h"
#include "shim/log.h"
#include "shim/own_fd.h"
#include "shim/reset.h"
#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/transfer/handover.h"
#include "shim/swap/transfer/handover_kind.h"
#include "switchyard/handover.h"

namespace switchyard::shim::swap::handover {
namespace {

namespace board = switchyard::handover;

struct Given {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
};

struct State {
  board::Board* board = nullptr;    // null: nothing is offered
  std::uint64_t number = 0;         // of the last offer: each number is for one
  Given given[board::kMostChunks];  // by descending addresses, as they leave
  std::uint32_t count = 0;
  std::uint64_t taken_out = 0;  // ranges, when it was last seen that all of that is there
  bool unsent = false;          // the last offer could not be made while work went on
};
constinit State g_states[abi::kMaxGpus];  // each its mover's own

bool can_offer() {
  return sharing_monitor() != 0 && driver().cuMemExportToShareableHandle != nullptr;
}

// The board, and in `fd` its file. False: the system has none.
bool make_board(State& state, int& fd) {
  fd = ::memfd_create("switchyard-handover", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return false;
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, board::kBoardBytes) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    mapped = ::mmap(nullptr, board::kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    close_file(fd);
    return false;
  }
  state.board = static_cast<board::Board*>(mapped);
  return true;
}

// Writes down what leaves.
void list(State& state, unsigned lane, std::uint64_t bytes) {
  const ChunksLock held;
  state.count = 0;
  state.taken_out = taken_out();
  each_leaving(lane, bytes, [&](Chunk& chunk, CUdeviceptr address, const Range& range) {
    std::uint32_t kind = 0;
    // Memory that is only cached is given back, and doesn't leave.
    if (state.count == board::kMostChunks || !kind_of(range.properties, kind) ||
        range.use == Use::kCached) {
      return;
    }
    state.board->chunks[state.count].bytes.store(chunk.bytes, std::memory_order_relaxed);
    state.board->chunks[state.count].kind.store(kind, std::memory_order_relaxed);
    state.given[state.count++] = {address, chunk.handle};
  });
  state.board->count.store(state.count, std::memory_order_release);
}

// The chunk that was written down, if it is still there. pre: a ChunksLock lives.
const Chunk* chunk_of(const Given& given) {
  const Range* range = find(given.address);
  if (range == nullptr || range->stays) return nullptr;
  const Chunk* chunk = chunk_at(given.address);
  return chunk != nullptr && chunk->handle == given.handle ? chunk : nullptr;
}

bool export_some(const State& state, std::uint32_t first, Descriptors& batch) {
  const ChunksLock held;
  for (std::uint32_t i = first; i < state.count && batch.count < wire::kMostDescriptors; ++i) {
    const Chunk* chunk = chunk_of(state.given[i]);
    int fd = -1;
    if (chunk == nullptr || export_chunk(*chunk, fd) != CUDA_SUCCESS) return false;
    batch.add(fd);
  }
  return true;
}

// The board first, then the chunks, as many as go with a frame. Closes `fd`.
bool send_all(const State& state, int fd) {
  const std::uint32_t total = state.count + 1;
  for (std::uint32_t sent = 0; sent < total;) {
    const memory_fd::NoFork no_fork;
    Descriptors batch;
    if (sent == 0) batch.add(fd);
    const bool exported = export_some(state, sent == 0 ? 0 : sent - 1, batch);
    const std::uint32_t count = batch.count;
    wire::Shared answer{};
    const bool taken =
        exported &&
        share(wire::kShare, {board::key_of(state.number), sent, total}, batch, answer) &&
        answer.verdict == wire::kTaken;
    batch.close();  // all that were not sent
    if (!taken) return false;
    sent += count;
  }
  return true;
}

// Others count on what was freed, and the device has it once nobody can take it over any more.
bool is_all_there(State& state) {
  const ChunksLock held;
  if (taken_out() == state.taken_out) return true;
  state.taken_out = taken_out();
  return std::all_of(state.given, state.given + state.count,
                     [](const Given& given) { return chunk_of(given) != nullptr; });
}

}  // namespace

void end_offer(unsigned lane) {
  State& state = g_states[lane];
  if (state.board == nullptr) return;
  state.board->phase.store(board::kEnded, std::memory_order_release);
  ::munmap(state.board, board::kBoardBytes);
  state.board = nullptr;
  state.count = 0;
  Descriptors none;
  wire::Shared answer{};
  share(wire::kEndShare, {board::key_of(state.number), 0, 0}, none, answer);
  none.close();
}

bool prepare(unsigned lane, std::uint64_t bytes, std::uint64_t number) {
  State& state = g_states[lane];
  if (state.board != nullptr && number == state.number) {
    if (is_all_there(state)) return true;
    end_offer(lane);
    return false;
  }
  end_offer(lane);
  int fd = -1;
  if (number == 0 || number == state.number || bytes == 0 || !can_offer() ||
      !make_board(state, fd)) {
    return false;
  }
  state.number = number;
  list(state, lane, bytes);
  if (state.count == 0) {
    close_file(fd);
    end_offer(lane);
    return false;
  }
  state.unsent = !send_all(state, fd);
  log_line(state.unsent ? Level::kInfo : Level::kDebug, "swap: %u chunks are %s to another job",
           state.count, state.unsent ? "not offered after all" : "offered");
  if (state.unsent) end_offer(lane);
  return !state.unsent;
}

void offer(unsigned lane, std::uint64_t bytes, std::uint64_t number) {
  State& state = g_states[lane];
  if (state.unsent) state.number = 0;
  prepare(lane, bytes, number);
}

void begin_offer(unsigned lane) {
  State& state = g_states[lane];
  if (state.board != nullptr) state.board->phase.store(board::kBegun, std::memory_order_release);
}

void forget_offer() {
  // Most GPUs had none, and what was never written takes no memory.
  for (State& state : g_states) {
    if (state.board != nullptr || state.number != 0) renew(state);
  }
}

bool offers(unsigned lane) { return g_states[lane].board != nullptr; }

void has_left(unsigned lane, CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  State& state = g_states[lane];
  if (state.board == nullptr) return;
  const Given* const end = state.given + state.count;
  const Given* const found =
      std::lower_bound(static_cast<const Given*>(state.given), end, address,
                       [](const Given& given, CUdeviceptr at) { return given.address > at; });
  if (found == end || found->address != address || found->handle != handle) return;
  state.board->chunks[found - state.given].left.store(1, std::memory_order_release);
}

}  // namespace switchyard::shim::swap::handover
