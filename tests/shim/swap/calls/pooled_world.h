// The world of memory that can be moved, with streams, events and pools.
//
// Concept. An event has come when a test says so, or when it was asked for often enough. A question
// while something is captured fails the test.
//
// Threading: locked by the world's lock, except what a test sets before it begins.
#pragma once

#include "shim/rules/stream_ordered.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim::testing {

struct PooledWorld {
  std::map<CUevent, bool> events;          // whether it has come
  std::vector<CUcontext> recorded;         // the contexts that were current at a record
  std::map<CUstream, CUcontext> contexts;  // of streams; the others are of the current one
  CUresult record_result = CUDA_SUCCESS;
  CUresult query_result = CUDA_ERROR_NOT_READY;  // of an event that hasn't come
  int comes_after = -1;  // so many questions: then all have come; negative: never
  std::atomic<int> queries{0};
  std::function<void()> during_query;
};

extern PooledWorld* g_pooled;

// Aligned, as the driver's are.
inline CUmemoryPool pool_at(std::uintptr_t n) { return pool_number(n * 0x10); }
inline CUstream stream_number(std::uintptr_t n) { return reinterpret_cast<CUstream>(n * 0x100); }

class PooledTest : public SwapTest {
 protected:
  PooledTest();
  ~PooledTest() override;

  // By the rules, from the current pool, which is number 1, or from another.
  CUdeviceptr allocate(std::uint64_t bytes, CUstream stream = stream_number(1));
  CUdeviceptr allocate_from(CUmemoryPool pool, std::uint64_t bytes);
  static CUresult try_allocate(std::uint64_t bytes, CUdeviceptr& at);
  static void free(CUdeviceptr at, CUstream stream = stream_number(1));
  static CUmemoryPool create(std::uintptr_t number, const CUmemPoolProps& properties);
  static CUmemPoolProps plain();
  static cuuint64_t attribute(CUmemPool_attribute which, CUmemoryPool pool = pool_at(1));
  static void synchronise();
  void all_have_come();
  // All that was freed is given back, and nothing is left.
  void empty();

  PooledWorld pooled_;
};

}  // namespace switchyard::shim::testing
