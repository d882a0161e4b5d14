#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "shim/client/client.h"
#include "shim/log.h"
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

board::Board* g_board = nullptr;    // null: nothing is offered
std::uint64_t g_number = 0;         // of the last offer: each number is for one
Given g_given[board::kMostChunks];  // by descending addresses, as they leave
std::uint32_t g_count = 0;
std::uint64_t g_taken_out = 0;  // ranges, when it was last seen that all of that is there
bool g_unsent = false;          // the last offer could not be made while work went on

bool can_offer() {
  return sharing_monitor() != 0 && driver().cuMemExportToShareableHandle != nullptr;
}

// The board, and in `fd` its file. False: the system has none.
bool make_board(int& fd) {
  fd = ::memfd_create("switchyard-handover", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return false;
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, board::kBoardBytes) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    mapped = ::mmap(nullptr, board::kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    ::close(fd);
    return false;
  }
  g_board = static_cast<board::Board*>(mapped);
  return true;
}

// Writes down what leaves.
void list(unsigned lane, std::uint64_t bytes) {
  const RangesLock held;
  g_count = 0;
  g_taken_out = taken_out();
  each_leaving(lane, bytes,
               [&](Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
                 std::uint32_t kind = 0;
                 // What is only cached is given back, and doesn't leave.
                 if (g_count == board::kMostChunks || !kind_of(properties, kind) ||
                     find(address)->use == Use::kCached) {
                   return;
                 }
                 g_board->chunks[g_count].bytes.store(chunk.bytes, std::memory_order_relaxed);
                 g_board->chunks[g_count].kind.store(kind, std::memory_order_relaxed);
                 g_given[g_count++] = {address, chunk.handle};
               });
  g_board->count.store(g_count, std::memory_order_release);
}

// The chunk that was written down, if it is still there. pre: a RangesLock lives.
const Chunk* chunk_of(const Given& given) {
  const Range* range = find(given.address);
  if (range == nullptr || range->stays) return nullptr;
  const Chunk* chunk = chunk_at(given.address);
  return chunk != nullptr && chunk->handle == given.handle ? chunk : nullptr;
}

bool export_some(std::uint32_t first, Descriptors& batch) {
  const RangesLock held;
  for (std::uint32_t i = first; i < g_count && batch.count < wire::kMostDescriptors; ++i) {
    const Chunk* chunk = chunk_of(g_given[i]);
    int fd = -1;
    if (chunk == nullptr || export_chunk(*chunk, fd) != CUDA_SUCCESS) return false;
    batch.add(fd);
  }
  return true;
}

// The board first, then the chunks, as many as go with a frame. Closes `fd`.
bool send_all(int fd) {
  const std::uint32_t total = g_count + 1;
  for (std::uint32_t sent = 0; sent < total;) {
    const memory_fd::NoFork no_fork;
    Descriptors batch;
    if (sent == 0) batch.add(fd);
    const bool exported = export_some(sent == 0 ? 0 : sent - 1, batch);
    const std::uint32_t count = batch.count;
    wire::Shared answer{};
    const bool taken = exported &&
                       share(wire::kShare, {board::key_of(g_number), sent, total}, batch, answer) &&
                       answer.verdict == wire::kTaken;
    batch.close();  // all that were not sent
    if (!taken) return false;
    sent += count;
  }
  return true;
}

// Others count on what was freed, and the device has it once nobody can take it over any more.
bool is_all_there() {
  const RangesLock held;
  if (taken_out() == g_taken_out) return true;
  g_taken_out = taken_out();
  return std::all_of(g_given, g_given + g_count,
                     [](const Given& given) { return chunk_of(given) != nullptr; });
}

}  // namespace

void end_offer() {
  if (g_board == nullptr) return;
  g_board->phase.store(board::kEnded, std::memory_order_release);
  ::munmap(g_board, board::kBoardBytes);
  g_board = nullptr;
  g_count = 0;
  Descriptors none;
  wire::Shared answer{};
  share(wire::kEndShare, {board::key_of(g_number), 0, 0}, none, answer);
  none.close();
}

bool prepare(unsigned lane, std::uint64_t bytes, std::uint64_t number) {
  if (g_board != nullptr && number == g_number) {
    if (is_all_there()) return true;
    end_offer();
    return false;
  }
  end_offer();
  int fd = -1;
  if (number == 0 || number == g_number || bytes == 0 || !can_offer() || !make_board(fd)) {
    return false;
  }
  g_number = number;
  list(lane, bytes);
  if (g_count == 0) {
    ::close(fd);
    end_offer();
    return false;
  }
  g_unsent = !send_all(fd);
  log_line(g_unsent ? Level::kInfo : Level::kDebug, "swap: %u chunks are %s to another job",
           g_count, g_unsent ? "not offered after all" : "offered");
  if (g_unsent) end_offer();
  return !g_unsent;
}

void offer(unsigned lane, std::uint64_t bytes, std::uint64_t number) {
  if (g_unsent) g_number = 0;
  prepare(lane, bytes, number);
}

void begin_offer() {
  if (g_board != nullptr) g_board->phase.store(board::kBegun, std::memory_order_release);
}

void forget_offer() {
  g_board = nullptr;
  g_number = 0;
  g_count = 0;
  g_unsent = false;
}

void has_left(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  if (g_board == nullptr) return;
  const Given* const end = g_given + g_count;
  const Given* const found =
      std::lower_bound(static_cast<const Given*>(g_given), end, address,
                       [](const Given& given, CUdeviceptr at) { return given.address > at; });
  if (found == end || found->address != address || found->handle != handle) return;
  g_board->chunks[found - g_given].left.store(1, std::memory_order_release);
}

}  // namespace switchyard::shim::swap::handover
