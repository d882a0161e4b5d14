#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "shim/client/client.h"
#include "shim/clock.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/transfer/handover.h"
#include "shim/swap/transfer/handover_kind.h"
#include "switchyard/handover.h"

namespace switchyard::shim::swap::handover {
namespace {

namespace board = switchyard::handover;

// The donor's work may be long at being held back, and it may have nothing to offer.
constexpr std::uint64_t kLongestPauseNs = 20'000'000;

// Mapped at a time, so that whoever needs the ranges comes in between.
constexpr std::uint32_t kAtATime = 16;

struct Taken {
  CUmemGenericAllocationHandle handle = 0;  // 0: accepted, or given back
  std::uint64_t bytes = 0;
  std::uint32_t kind = 0;
  int descriptor = 0;       // that it came by (memory_fd.h)
  CUdeviceptr address = 0;  // its place; 0: none yet
  Access access = {};
  bool stands = false;  // it stands by there, and whoever ends the range ends it (range_table.h)
};

// A chunk that is away.
struct Away {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t kind = 0;
  Access access = {};
};

enum class Stage { kNothing, kWaiting, kTaken };

struct State {
  Stage stage = Stage::kNothing;
  std::uint64_t number = 0;    // the last that was looked after
  std::uint64_t since_ns = 0;  // when that was first heard of,
  std::uint64_t ask_ns = 0;    // and when the offer is asked for again
  const board::Board* board = nullptr;
  Taken taken[board::kMostChunks];
  std::uint32_t count = 0;
  bool matched = false;        // each has its place, or was given back
  std::uint32_t in_place = 0;  // so many of them are mapped, or were found not to be
  std::uint32_t first = 0;     // none before it is still to be accepted
  Away away[board::kMostChunks];
};
constinit State g_states[abi::kMaxGpus];  // each its mover's own

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

bool import(State& state, int fd) {
  const board::Offered& offered = state.board->chunks[state.count];
  Taken& taken = state.taken[state.count];
  taken = {.handle = 0,
           .bytes = offered.bytes.load(std::memory_order_relaxed),
           .kind = offered.kind.load(std::memory_order_relaxed),
           .descriptor = memory_fd::keep(fd),
           .address = 0,
           .access = {},
           .stands = false};
  if (taken.descriptor == 0) return false;
  if (memory_fd::import(fd, taken.handle) != CUDA_SUCCESS) {
    memory_fd::close(taken.descriptor);
    return false;
  }
  ++state.count;
  return true;
}

enum class Came { kNotYet, kAll, kNever };

Came take_all(State& state) {
  std::uint32_t total = 1;
  for (std::uint32_t first = 0; first < total;) {
    const memory_fd::NoFork no_fork;
    Descriptors batch;
    wire::Shared answer{};
    const bool answered =
        share(wire::kOpenShared, {board::key_of(state.number), first, 0}, batch, answer);
    const std::uint32_t count = batch.count;
    if (answered && answer.verdict == wire::kNoSuchShare && first == 0) return Came::kNotYet;
    bool right = answered && answer.verdict == wire::kTaken && answer.count == count &&
                 count != 0 && answer.total > first && count <= answer.total - first &&
                 answer.total <= board::kMostChunks + 1 && (first == 0 || answer.total == total);
    if (right && first == 0) {
      total = answer.total;
      state.board = map_board(batch.fd[0]);
      right =
          state.board != nullptr && state.board->count.load(std::memory_order_acquire) == total - 1;
    }
    bool more = right;
    for (std::uint32_t i = first == 0 ? 1 : 0; i < count && more; ++i)
      more = import(state, batch.fd[i]);
    batch.close();
    if (!right) return Came::kNever;
    if (!more) break;  // what was imported so far serves as well
    first += count;
  }
  return Came::kAll;
}

void give_back(Taken& taken) {
  driver().cuMemRelease(taken.handle);
  memory_fd::close(taken.descriptor);
  taken = {};
}

// Where it stands by, if nobody has freed that meanwhile.
Chunk* place_of(const Taken& taken) {
  Chunk* chunk = taken.stands ? chunk_at(taken.address) : nullptr;
  return chunk != nullptr && chunk->preimported == taken.handle ? chunk : nullptr;
}

// The GPU's chunks that are away, and of a kind that can be handed over.
std::uint32_t list_away(State& state, unsigned lane) {
  std::uint32_t found = 0;
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr address, const Range& range) {
    std::uint32_t kind = 0;
    if (chunk.handle != 0 || found == board::kMostChunks || !kind_of(range.properties, kind))
      return;
    state.away[found++] = {address, chunk.bytes, kind, access_of(range)};
  });
  return found;
}

// Gives each a place of its own, and back what finds none.
void match(State& state, unsigned lane) {
  Away* const end = state.away + list_away(state, lane);
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < state.count; ++i) {
    Taken& taken = state.taken[i];
    Away* const place = std::find_if(static_cast<Away*>(state.away), end, [&](const Away& away) {
      return away.address != 0 && away.kind == taken.kind && away.bytes == taken.bytes;
    });
    if (place == end) {
      give_back(taken);
      continue;
    }
    taken.address = place->address;
    taken.access = place->access;
    place->address = 0;
    ++found;
  }
  log_line(Level::kDebug, "swap: %u chunks of another job find their place among %ld", found,
           static_cast<long>(end - state.away));
}

void take_down(Taken& taken) {
  Chunk* chunk = place_of(taken);
  if (chunk != nullptr) drop_preimported(*chunk, taken.address);
  if (taken.handle != 0 && !taken.stands) give_back(taken);
  taken = {};
}

bool map(Taken& taken) {
  if (taken.handle == 0) return false;
  Chunk* chunk = chunk_at(taken.address);
  taken.stands = chunk != nullptr && chunk->handle == 0 && chunk->preimported == 0 &&
                 chunk->bytes == taken.bytes &&
                 preimport(*chunk, taken.address, taken.handle, taken.descriptor);
  if (!taken.stands) give_back(taken);
  return taken.stands;
}

// Permits access to a run of mapped addresses.
void permit_run(Taken* first, Taken* end) {
  if (first == end) return;
  const CUdeviceptr behind = end[-1].address + end[-1].bytes;
  if (permit(first->address, behind - first->address, first->access) == CUDA_SUCCESS) return;
  for (Taken* each = first; each != end; ++each) take_down(*each);
}

void map_all(Taken* first, Taken* end) {
  Taken* begins = first;
  for (Taken* each = first; each != end; ++each) {
    const CUdeviceptr behind = each->address + each->bytes;
    const bool mapped = map(*each);
    const bool goes_on =
        each + 1 != end && each[1].address == behind && each[1].access.peers == each->access.peers;
    if (mapped && goes_on) continue;
    permit_run(begins, mapped ? each + 1 : each);
    begins = each + 1;
  }
}

void drop_now(unsigned lane) {
  const ChunksLock held;
  drop(lane);
}

void ask_for_offer(unsigned lane, bool due) {
  State& state = g_states[lane];
  const std::uint64_t now = monotonic_ns();
  if (now < state.ask_ns && !due) return;
  switch (take_all(state)) {
    case Came::kNotYet:
      state.ask_ns = now + std::min((now - state.since_ns) / 8, kLongestPauseNs);
      return;
    case Came::kAll:
      log_line(Level::kDebug, "swap: %u chunks of another job can be taken", state.count);
      state.stage = Stage::kTaken;
      return;
    case Came::kNever:
      log_line(Level::kInfo, "swap: chunks of another job could not be taken: it goes without");
      drop_now(lane);
      return;
  }
}

}  // namespace

bool follow(unsigned lane, std::uint64_t number, bool away, bool due) {
  State& state = g_states[lane];
  if (number != state.number) {
    drop_now(lane);
    state.number = number;
    if (number != 0 && driver().cuMemImportFromShareableHandle != nullptr) {
      state.stage = Stage::kWaiting;
      state.since_ns = state.ask_ns = monotonic_ns();
    }
  }
  if (!away && state.stage != Stage::kNothing) drop_now(lane);
  if (state.stage == Stage::kWaiting) ask_for_offer(lane, due);
  return state.stage != Stage::kNothing;
}

bool is_taken(unsigned lane) { return g_states[lane].stage == Stage::kTaken; }

bool begun(unsigned lane) {
  const State& state = g_states[lane];
  return state.stage == Stage::kTaken &&
         state.board->phase.load(std::memory_order_acquire) != board::kOffered;
}

bool ended(unsigned lane) {
  const State& state = g_states[lane];
  return state.stage == Stage::kTaken &&
         state.board->phase.load(std::memory_order_acquire) == board::kEnded;
}

bool put_in_place(unsigned lane) {
  State& state = g_states[lane];
  if (state.stage != Stage::kTaken) return false;
  if (!state.matched) match(state, lane);
  state.matched = true;
  const std::uint32_t first = state.in_place;
  state.in_place = std::min(first + kAtATime, state.count);
  map_all(state.taken + first, state.taken + state.in_place);
  return first < state.in_place;
}

bool next_arrival(unsigned lane, Arrival& arrival) {
  State& state = g_states[lane];
  while (state.first < state.in_place && place_of(state.taken[state.first]) == nullptr)
    ++state.first;
  for (std::uint32_t i = state.first; i < state.in_place; ++i) {
    if (state.board->chunks[i].left.load(std::memory_order_acquire) == 0) continue;
    Chunk* chunk = place_of(state.taken[i]);
    if (chunk == nullptr) continue;
    arrival = {chunk, state.taken[i].address, i};
    return true;
  }
  return false;
}

void accept(unsigned lane, const Arrival& arrival) {
  accept_preimported(*arrival.chunk);
  g_states[lane].taken[arrival.number] = {};
}

std::uint64_t expected_bytes(unsigned lane) {
  const State& state = g_states[lane];
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < state.count; ++i) {
    const bool gone = state.taken[i].stands && place_of(state.taken[i]) == nullptr;
    if (!gone) bytes += state.taken[i].bytes;
  }
  return bytes;
}

void drop(unsigned lane) {
  State& state = g_states[lane];
  for (std::uint32_t i = 0; i < state.count; ++i) take_down(state.taken[i]);
  state.count = state.in_place = state.first = 0;
  state.matched = false;
  if (state.board != nullptr) ::munmap(const_cast<board::Board*>(state.board), board::kBoardBytes);
  state.board = nullptr;
  state.stage = Stage::kNothing;
}

void clear() {
  forget_offer();
  // The board's mapping and the driver's handles are the parent's: they are left where they are.
  for (State& state : g_states) {
    if (state.number != 0) renew(state);
  }
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::handover
