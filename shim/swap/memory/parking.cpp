#include "shim/swap/memory/parking.h"

#include <pthread.h>
#include <stdlib.h>

#include <utility>

#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "shim/size_text.h"
#include "shim/swap/memory/memory_fd.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap::parking {
namespace {

// One GPU's memory that is on another one.
struct Counted {
  unsigned on = 0;
  std::uint64_t bytes = 0;
  std::uint64_t kept = 0;  // of these bytes
};

struct State {
  Counted counted[abi::kMaxGpus] = {};
  pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;  // all of an answer is of one instant
  Slab* empty[abi::kMaxGpus] = {};                       // for sweep()
};
constinit State g_state;

Counted counted(unsigned lane) {
  const Locked locked(g_state.counting);
  return g_state.counted[lane];
}

CUmemLocation gpu(unsigned lane) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = static_cast<int>(lane);
  return location;
}

// In one slab. To give access takes as long for them all as for one.
constexpr unsigned kMostKept = 32;

// Memory that a descriptor holds.
struct Kept {
  int descriptor = 0;  // memory_fd.h
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;  // while it is mapped
};

}  // namespace

struct Slab {
  CUdeviceptr at = 0;
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  bool mapped = false;  // by this handle
  unsigned lane = 0;    // whose memory is in it
  unsigned pieces = 0;  // that are taken
  Kept kept[kMostKept] = {};
  unsigned count = 0;  // of them; 0: it is a slab of its own
  Slab* next = nullptr;
};

namespace {

CUresult make(Slab& slab) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = gpu(counted(slab.lane).on);
  const CUmemAccessDesc access{gpu(slab.lane), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult result = driver().cuMemAddressReserve(&slab.at, slab.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) slab.at = 0;
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemCreate(&slab.handle, slab.bytes, &properties, 0);
    if (result != CUDA_SUCCESS) slab.handle = 0;
  }
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemMap(slab.at, slab.bytes, 0, slab.handle, 0);
    slab.mapped = result == CUDA_SUCCESS;
  }
  if (result != CUDA_SUCCESS) return result;
  return driver().cuMemSetAccess(slab.at, slab.bytes, &access, 1);
}

CUresult permit(const Slab& slab, CUdeviceptr begin, CUdeviceptr end) {
  const CUmemAccessDesc access{gpu(slab.lane), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return begin == end ? CUDA_SUCCESS : driver().cuMemSetAccess(begin, end - begin, &access, 1);
}

// All that is kept in it, one behind the other. A piece that was handed over leaves a hole.
CUresult map_kept(Slab& slab) {
  CUresult result = driver().cuMemAddressReserve(&slab.at, slab.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) slab.at = 0;
  CUdeviceptr begin = slab.at;
  CUdeviceptr at = slab.at;
  for (unsigned i = 0; i < slab.count && result == CUDA_SUCCESS; ++i) {
    Kept& kept = slab.kept[i];
    if (kept.descriptor == 0) {
      result = permit(slab, begin, at);
      begin = at + kept.bytes;
    } else {
      result = memory_fd::import_kept(kept.descriptor, kept.handle);
      if (result == CUDA_SUCCESS) result = driver().cuMemMap(at, kept.bytes, 0, kept.handle, 0);
    }
    at += kept.bytes;
  }
  return result == CUDA_SUCCESS ? permit(slab, begin, at) : result;
}

// Gives back the parts made so far. The driver's first complaint.
CUresult undo(Slab& slab) {
  CUresult result = CUDA_SUCCESS;
  const auto note = [&](CUresult next) { result = result == CUDA_SUCCESS ? next : result; };
  if (slab.mapped) note(driver().cuMemUnmap(slab.at, slab.bytes));
  if (slab.handle != 0) note(driver().cuMemRelease(slab.handle));
  CUdeviceptr at = slab.at;
  for (unsigned i = 0; i < slab.count; ++i) {
    Kept& kept = slab.kept[i];
    if (kept.handle != 0) {
      note(driver().cuMemUnmap(at, kept.bytes));
      note(driver().cuMemRelease(kept.handle));
    }
    kept.handle = 0;
    at += kept.bytes;
  }
  if (slab.at != 0) note(driver().cuMemAddressFree(slab.at, slab.bytes));
  slab.at = 0;
  slab.mapped = false;
  return result;
}

Kept& kept_at(const ParkedPiece& piece) {
  Kept* kept = piece.slab->kept;
  for (std::uint64_t passed = 0; passed != piece.offset; ++kept) passed += kept->bytes;
  return *kept;
}

// The slab that has no piece any more, if this was the last.
Slab* emptied(ParkedPiece& piece) {
  Slab* const slab = piece.slab;
  piece = {};
  return slab != nullptr && --slab->pieces == 0 ? slab : nullptr;
}

void end(Slab* slab) {
  const CUresult result = undo(*slab);
  if (result != CUDA_SUCCESS) {
    log_line(Level::kError, "swap: %s on GPU %u could not be given back: driver %d",
             size_text(slab->bytes).text, counted(slab->lane).on, static_cast<int>(result));
  }
  for (unsigned i = 0; i < slab->count; ++i) {
    if (slab->kept[i].descriptor != 0) memory_fd::close(slab->kept[i].descriptor);
  }
  {
    const Locked locked(g_state.counting);
    Counted& all = g_state.counted[slab->lane];
    if (slab->count != 0) all.kept -= slab->bytes;
    all.bytes -= slab->bytes;
  }
  ::free(slab);
}

}  // namespace

Parked parked(unsigned lane) {
  const Counted all = counted(lane);
  return {all.on, all.bytes, all.bytes != 0 && all.kept == all.bytes};
}

void is_on(unsigned lane, unsigned on) {
  const Locked locked(g_state.counting);
  g_state.counted[lane].on = on;
}

void count(unsigned lane, unsigned on, std::uint64_t bytes) {
  const Locked locked(g_state.counting);
  g_state.counted[lane].on = on;
  g_state.counted[lane].bytes += bytes;
}

void uncount(unsigned lane, std::uint64_t bytes) {
  const Locked locked(g_state.counting);
  g_state.counted[lane].bytes -= bytes;
}

CUresult take(unsigned lane, ParkedPiece* pieces, unsigned count) {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < count; ++i) bytes += pieces[i].bytes;
  auto* slab = static_cast<Slab*>(::calloc(1, sizeof(Slab)));
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (slab != nullptr) {
    *slab = {.bytes = bytes, .lane = lane, .pieces = count};
    result = make(*slab);
    if (result != CUDA_SUCCESS) undo(*slab);
  }
  if (result != CUDA_SUCCESS) {
    ::free(slab);
    uncount(lane, bytes);
    for (unsigned i = 0; i < count; ++i) pieces[i] = {};
    return result;
  }
  CUdeviceptr at = slab->at;
  for (unsigned i = 0; i < count; ++i) {
    pieces[i].at = at;
    pieces[i].offset = at - slab->at;
    pieces[i].slab = slab;
    at += pieces[i].bytes;
  }
  return CUDA_SUCCESS;
}

bool keep(unsigned lane, Slab*& slab, int descriptor, ParkedPiece& piece) {
  if (slab == nullptr || slab->count == kMostKept) {
    auto* const fresh = static_cast<Slab*>(::calloc(1, sizeof(Slab)));
    if (fresh == nullptr) return false;
    fresh->lane = lane;
    slab = fresh;
  }
  piece.slab = slab;
  piece.offset = slab->bytes;
  slab->kept[slab->count++] = {.descriptor = descriptor, .bytes = piece.bytes};
  slab->bytes += piece.bytes;
  ++slab->pieces;
  const Locked locked(g_state.counting);
  g_state.counted[lane].kept += piece.bytes;
  return true;
}

CUresult reach(const ParkedPiece& piece, CUdeviceptr& at) {
  Slab& slab = *piece.slab;
  const CUresult result = slab.at == 0 ? map_kept(slab) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) undo(slab);
  at = slab.at + piece.offset;
  return result;
}

bool is_at_home(const ParkedPiece& piece) {
  return piece && piece.slab->count != 0 && counted(piece.slab->lane).on == piece.slab->lane;
}

CUresult import(const ParkedPiece& piece, CUmemGenericAllocationHandle& handle) {
  return memory_fd::import_kept(kept_at(piece).descriptor, handle);
}

int hand_over(ParkedPiece& piece) {
  const int descriptor = std::exchange(kept_at(piece).descriptor, 0);
  give_back_later(piece);
  return descriptor;
}

void leave(const ParkedPiece& piece) {
  if (piece && piece.slab->count != 0) undo(*piece.slab);
}

void give_back(ParkedPiece& piece) {
  Slab* const slab = emptied(piece);
  if (slab != nullptr) end(slab);
}

void give_back_later(ParkedPiece& piece) {
  Slab* const slab = emptied(piece);
  if (slab == nullptr) return;
  slab->next = g_state.empty[slab->lane];
  g_state.empty[slab->lane] = slab;
}

bool sweep(unsigned lane) {
  Slab* slab = g_state.empty[lane];
  const bool any = slab != nullptr;
  g_state.empty[lane] = nullptr;
  while (slab != nullptr) {
    Slab* const next = slab->next;
    end(slab);
    slab = next;
  }
  return any;
}

void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::parking
