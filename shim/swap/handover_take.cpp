#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "shim/client/client.h"
#include "shim/clock.h"
#include "shim/log.h"
#include "shim/swap/descriptors.h"
#include "shim/swap/handover.h"
#include "shim/swap/handover_kind.h"
#include "switchyard/handover.h"

namespace switchyard::shim::swap::handover {
namespace {

namespace board = switchyard::handover;

// The giver's work may be long at being held back, and it may have nothing to offer.
constexpr std::uint64_t kLongestPauseNs = 20'000'000;

struct Taken {
  CUmemGenericAllocationHandle handle = 0;  // 0: accepted
  std::uint64_t bytes = 0;
  std::uint32_t kind = 0;
  int descriptor = 0;      // that it came by (descriptors.h)
  CUdeviceptr mapped = 0;  // where it is, for now; 0: nowhere
};

// An away chunk that a match is looked for.
struct Away {
  Match match;
  std::uint32_t kind = 0;
};

enum class State { kNothing, kWaiting, kTaken };

State g_state = State::kNothing;
std::uint64_t g_number = 0;    // the last that was looked after
std::uint64_t g_since_ns = 0;  // when that was first heard of,
std::uint64_t g_ask_ns = 0;    // and when the offer is asked for again
const board::Board* g_board = nullptr;
Taken g_taken[board::kMostChunks];
std::uint32_t g_count = 0;
Away g_away[board::kMostChunks];
Match g_matches[board::kMostChunks];

const board::Board* map_board(int fd) {
  struct stat info {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::syscall(SYS_fstat, fd, &info) != 0 ||
      info.st_size != board::kBoardBytes) {
    return nullptr;
  }
  void* mapped = ::mmap(nullptr, board::kBoardBytes, PROT_READ, MAP_SHARED, fd, 0);
  return mapped != MAP_FAILED ? static_cast<const board::Board*>(mapped) : nullptr;
}

bool import(int fd) {
  const board::Offered& offered = g_board->chunks[g_count];
  Taken& taken = g_taken[g_count];
  taken = {.handle = 0,
           .bytes = offered.bytes.load(std::memory_order_relaxed),
           .kind = offered.kind.load(std::memory_order_relaxed),
           .descriptor = descriptors::keep(fd),
           .mapped = 0};
  if (taken.descriptor == 0) return false;
  // The driver takes the descriptor as a pointer.
  auto* const as_pointer = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  if (driver().cuMemImportFromShareableHandle(
          &taken.handle, as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS) {
    descriptors::close(taken.descriptor);
    return false;
  }
  ++g_count;
  return true;
}

enum class Came { kNotYet, kAll, kNever };

Came take_all() {
  std::uint32_t total = 1;
  for (std::uint32_t first = 0; first < total;) {
    const descriptors::NoFork no_fork;
    Descriptors batch;
    wire::Shared answer{};
    const bool answered =
        share(wire::kOpenShared, {board::key_of(g_number), first, 0}, batch, answer);
    const std::uint32_t count = batch.count;
    if (answered && answer.verdict == wire::kNoSuchShare && first == 0) return Came::kNotYet;
    bool right = answered && answer.verdict == wire::kTaken && answer.count == count &&
                 count != 0 && answer.total > first && count <= answer.total - first &&
                 answer.total <= board::kMostChunks + 1 && (first == 0 || answer.total == total);
    if (right && first == 0) {
      total = answer.total;
      g_board = map_board(batch.fd[0]);
      right = g_board != nullptr && g_board->count.load(std::memory_order_acquire) == total - 1;
    }
    bool more = right;
    for (std::uint32_t i = first == 0 ? 1 : 0; i < count && more; ++i) more = import(batch.fd[i]);
    batch.close();
    if (!right) return Came::kNever;
    if (!more) break;  // what was imported so far serves as well
    first += count;
  }
  return Came::kAll;
}

void ask_for_offer() {
  const std::uint64_t now = monotonic_ns();
  if (now < g_ask_ns) return;
  switch (take_all()) {
    case Came::kNotYet:
      g_ask_ns = now + std::min((now - g_since_ns) / 8, kLongestPauseNs);
      return;
    case Came::kAll:
      log_line(Level::kDebug, "swap: %u chunks of another job can be taken", g_count);
      g_state = State::kTaken;
      return;
    case Came::kNever:
      log_line(Level::kInfo, "swap: chunks of another job could not be taken: it goes without");
      drop();
      return;
  }
}

// The GPU's chunks that are away, and of a kind that can be handed over.
std::uint32_t list_away(unsigned lane) {
  std::uint32_t found = 0;
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
    std::uint32_t kind = 0;
    if (chunk.handle != 0 || found == board::kMostChunks || !kind_of(properties, kind)) return;
    g_away[found++] = {{&chunk, address, properties.location, 0}, kind};
  });
  return found;
}

}  // namespace

bool follow(std::uint64_t number, bool away) {
  if (number != g_number) {
    drop();
    g_number = number;
    if (number != 0 && driver().cuMemImportFromShareableHandle != nullptr) {
      g_state = State::kWaiting;
      g_since_ns = g_ask_ns = monotonic_ns();
    }
  }
  if (!away) drop();
  if (g_state == State::kWaiting) ask_for_offer();
  return g_state != State::kNothing;
}

bool begun() {
  return g_state == State::kTaken &&
         g_board->phase.load(std::memory_order_acquire) != board::kOffered;
}

bool ended() {
  return g_state == State::kTaken &&
         g_board->phase.load(std::memory_order_acquire) == board::kEnded;
}

std::uint32_t match(unsigned lane, const Match*& matches) {
  matches = g_matches;
  if (!begun()) return 0;
  std::uint32_t away = list_away(lane);
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < g_count; ++i) {
    for (std::uint32_t k = 0; k < away; ++k) {
      Away& each = g_away[k];
      if (each.match.chunk == nullptr || each.kind != g_taken[i].kind ||
          each.match.chunk->bytes != g_taken[i].bytes) {
        continue;
      }
      g_matches[found] = each.match;
      g_matches[found++].offered = i;
      each.match.chunk = nullptr;
      break;
    }
  }
  return found;
}

bool map(const Match& match) {
  Taken& taken = g_taken[match.offered];
  if (driver().cuMemMap(match.address, taken.bytes, 0, taken.handle, 0) != CUDA_SUCCESS) {
    return false;
  }
  taken.mapped = match.address;
  return true;
}

bool is_accepted(const Match& match) { return g_taken[match.offered].handle == 0; }

bool is_free(const Match& match) {
  return !is_accepted(match) &&
         g_board->chunks[match.offered].left.load(std::memory_order_acquire) != 0;
}

void accept(const Match& match) {
  Taken& taken = g_taken[match.offered];
  match.chunk->handle = taken.handle;
  match.chunk->descriptor = taken.descriptor;
  taken = {};
}

void drop() {
  for (std::uint32_t i = 0; i < g_count; ++i) {
    const Taken& taken = g_taken[i];
    if (taken.mapped != 0) driver().cuMemUnmap(taken.mapped, taken.bytes);
    if (taken.handle == 0) continue;
    driver().cuMemRelease(taken.handle);
    descriptors::close(taken.descriptor);
  }
  g_count = 0;
  if (g_board != nullptr) ::munmap(const_cast<board::Board*>(g_board), board::kBoardBytes);
  g_board = nullptr;
  g_state = State::kNothing;
}

void clear() {
  forget_offer();
  // The board's mapping and the driver's handles are the parent's: they are left where they are.
  g_board = nullptr;
  g_count = 0;
  g_state = State::kNothing;
  g_number = 0;
}

}  // namespace switchyard::shim::swap::handover
