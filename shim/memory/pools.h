// Pools: memory that the driver keeps for stream-ordered allocations and for graphs.
//
// Concept. A pool is charged what it *reserves* (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), because no
// other pool or process can have that. Allocations from it are only its own bookkeeping. Before an
// allocation we reserve what the pool may have to grow by. After it we read the pool's size and put
// the charge right. The driver shrinks pools when the application synchronises, so those calls
// settle too. The memory of graphs is one more pool for each GPU, with attributes of its own.
//
//     charged = reserved by the driver + growth that calls under way may still cause
//
// A managed pool's memory may come to a GPU at any time, and what the driver says that it reserves
// need not be there. So it is charged what lives in it, or what is reserved, whichever is more. It
// is charged to the GPU that it is meant for, else to the one that is current when it is first
// seen.
//
// Not charged: imported pools (their exporter is) and pinned ones of the host. A pool of which
// nothing is known is charged to the GPU of the stream that uses it.
//
// Threading: any thread; one lock. It is held while the driver is asked for a pool's attributes. So
// an older answer never overwrites a newer one, and no destroyed pool is asked.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver.h"
#include "shim/memory/ledger.h"

namespace switchyard::shim::pools {

enum class PoolKind : std::uint8_t {
  kDevice,   // it reserves memory of a GPU
  kManaged,  // its memory may come to a GPU
  kHost,     // it never has any there
};
// Makes a pool known: cuMemPoolCreate, or the default pool of `device` (-1: whose it is isn't
// known).
void learn(CUmemoryPool pool, int device, PoolKind kind = PoolKind::kDevice);
// It was made by cuMemPoolCreate.
void made(CUmemoryPool pool);
// Others can be given it from here on.
void exported(CUmemoryPool pool);
// Whether it isn't known, or which GPU it is charged to.
bool lacks_gpu(CUmemoryPool pool);

// An allocation under way.
struct Growth {
  int slot = -1;            // -1: not a pool of ours, nothing is charged
  std::uint64_t bytes = 0;  // the allocation
  std::uint64_t need = 0;   // what it may make the pool grow by: reserved
  std::uint64_t owner = 0;  // the pool's number, for its note: a handle may be another pool's later
};

// Before an allocation from `pool` (begin) or for a graph on `device` (begin_graph). Refuses by
// CUDA_ERROR_OUT_OF_MEMORY. Every begin that succeeded needs its end.
CUresult begin(CUmemoryPool pool, std::uint64_t bytes, Growth& growth);
CUresult begin_graph(int device, std::uint64_t bytes, Growth& growth);
// For one that has run: as much as the GPU's graphs hold may be its own.
CUresult begin_graph_again(int device, std::uint64_t bytes, Growth& growth);

// After it. `made`: it has an allocation more. False when the pool grew by more than the account
// has: the caller gives it back.
bool end(const Growth& growth, bool made = false);
// An allocation has ended whose note was that.
void freed(const ledger::Charge& note);

// Counts a refusal that was found out after the fact, and trims what can be trimmed.
CUresult refuse(const Growth& growth);

// Reads what a pool, or a GPU's graphs, reserve now.
void settle(CUmemoryPool pool);
void settle_graphs(int device);
void settle_charged();

// Whether anything is charged to a pool. One load: for calls that must stay cheap.
extern std::atomic<std::uint32_t> g_in_use;
inline void settle_all() {
  if (g_in_use.load(std::memory_order_relaxed) != 0) settle_charged();
}

// Makes every pool give back what it doesn't use.
void reclaim();

// A pool's end: its memory lives on as long as its allocations. Nothing asks the driver about one
// that was made from ending() on, and its handle may be another's. Then either ended() or, when the
// driver refused, lives_on(). The slot that they take is ending()'s; -1: not a pool of ours.
int ending(CUmemoryPool pool);
void ended(int slot);
void lives_on(int slot);

// Frees what may be a pool's allocation, by `call`.
template <typename Call>
CUresult free_pooled(std::uint64_t address, Call call) {
  ledger::Charge charge;
  const bool known = ledger::take(ledger::NoteKind::kPooled, address, charge);
  const CUresult result = call();
  if (known && result == CUDA_SUCCESS) freed(charge);
  if (known && result != CUDA_SUCCESS) ledger::note(ledger::NoteKind::kPooled, address, charge);
  settle_all();
  return result;
}

}  // namespace switchyard::shim::pools
