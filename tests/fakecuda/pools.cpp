#include "pools.h"

#include <sys/mman.h>

#include <algorithm>

#include "graph.h"

namespace fakecuda {
namespace {

constexpr std::size_t kSlab = 32 * kMiB, kPiece = 512;
constexpr std::size_t kMostBytes = std::size_t{1} << 46;  // rounding it up can't overflow

CUdeviceptr take(Pool* pool, std::size_t bytes) {
  for (auto& [base, slab] : pool->slabs) {
    for (auto hole = slab.holes.begin(); hole != slab.holes.end(); ++hole) {
      if (hole->second < bytes) continue;
      const auto [offset, size] = *hole;
      slab.holes.erase(hole);
      if (size > bytes) slab.holes[offset + bytes] = size - bytes;
      pool->used += bytes;
      pool->used_high = std::max(pool->used_high, pool->used);
      return base + offset;
    }
  }
  return 0;
}

bool grow(Pool* pool, std::size_t bytes) {
  const std::size_t limit = pool->max_bytes;
  std::size_t size = std::max(kSlab, round_up(bytes, kGranularity));
  if (limit && pool->reserved + size > limit) size = round_up(bytes, kGranularity);
  if (limit && pool->reserved + size > limit) return false;
  Slab slab{make_backing(pool->gpu, size, false, !pool->of_host), {{0, size}}};
  if (!slab.backing && size > round_up(bytes, kGranularity)) {
    size = round_up(bytes, kGranularity);
    slab = {make_backing(pool->gpu, size, false, !pool->of_host), {{0, size}}};
  }
  if (!slab.backing) return false;
  void* at = map_backing(slab.backing, nullptr, 0, size, PROT_READ | PROT_WRITE);
  if (!at) return false;
  pool->slabs[reinterpret_cast<CUdeviceptr>(at)] = std::move(slab);
  pool->reserved += size;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  return true;
}

void give_back(Pool* pool, CUdeviceptr address, std::size_t bytes) {
  auto found = pool->slabs.upper_bound(address);
  if (found == pool->slabs.begin()) return;
  auto& [base, slab] = *--found;
  std::size_t offset = address - base;
  pool->used -= bytes;
  auto next = slab.holes.lower_bound(offset);
  if (next != slab.holes.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      slab.holes.erase(before);
    }
  }
  if (next != slab.holes.end() && offset + bytes == next->first) {
    bytes += next->second;
    slab.holes.erase(next);
  }
  slab.holes[offset] = bytes;
}

}  // namespace

Pools& pools() {
  static Pools* only = new Pools;
  return *only;
}

Pool* default_pool(int gpu) {
  Pool*& pool = pools().defaults[gpu];
  if (!pool) {
    pool = new Pool;
    pool->gpu = gpu;
    pool->is_default = true;
    pools().all.insert(pool);
  }
  return pool;
}

Pool* current_pool(int gpu) {
  Pool* pool = pools().current[gpu];
  return pool ? pool : default_pool(gpu);
}

void trim(Pool* pool, std::uint64_t keep) {
  for (auto slab = pool->slabs.begin(); slab != pool->slabs.end() && pool->reserved > keep;) {
    const std::size_t bytes = slab->second.backing->bytes;
    const auto& holes = slab->second.holes;
    const bool free = holes.size() == 1 && holes.begin()->second == bytes;
    if (!free) {
      ++slab;
      continue;
    }
    unmap(slab->first, bytes);
    pool->reserved -= bytes;
    slab = pool->slabs.erase(slab);
  }
}

Pool* pool_of(CUmemoryPool handle) {
  auto* pool = reinterpret_cast<Pool*>(handle);
  return pools().all.count(pool) ? pool : nullptr;
}

CUdeviceptr allocate_from(Pool* pool, std::size_t bytes) {
  if (bytes > kMostBytes) return 0;
  const std::size_t size = round_up(bytes, kPiece);
  std::lock_guard guard(pools().lock);
  CUdeviceptr address = take(pool, size);
  if (!address && grow(pool, size)) address = take(pool, size);
  if (!address) {  // what other pools keep without using it
    for (Pool* other : pools().all) {
      if (other->gpu == pool->gpu) trim(other, 0);
    }
    if (grow(pool, size)) address = take(pool, size);
  }
  return address;
}

void free_now(const Range& range) {
  std::lock_guard guard(pools().lock);
  give_back(static_cast<Pool*>(range.pool), range.start, round_up(range.bytes, kPiece));
}

void trim_pools_after_wait() {
  std::lock_guard guard(pools().lock);
  for (Pool* pool : pools().all) {
    if (pool->reserved > pool->threshold) trim(pool, pool->threshold);
  }
}

CUresult free_pooled(const Range& range) {
  if (range.kind == RangeKind::kGraph) return free_graph_memory(range.start), CUDA_SUCCESS;
  Range removed;
  if (!Ranges::all().remove(range.start, &removed)) return CUDA_ERROR_INVALID_VALUE;
  free_now(removed);
  trim_pools_after_wait();
  return CUDA_SUCCESS;
}

}  // namespace fakecuda
