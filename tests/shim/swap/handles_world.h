// The calls of virtual memory management as an application makes them, by the rules, over the
// made-up driver of swap_world.h.
//
// Concept. What a test leaves mapped or referred to is ended after it, so that the tables, which
// are the process's, are empty for the next.
//
// Threading: locked.
#pragma once

#include "shim/swap/handles.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim::testing {

class HandlesTest : public SwapTest {
 protected:
  using Handle = swap::Handle;

  ~HandlesTest() override;

  static CUmemAllocationProp properties(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  // An original that is not to be called.
  static CUresult driver_create(Handle* handle, size_t bytes, const CUmemAllocationProp* properties,
                                unsigned long long flags);

  Handle create(std::uint64_t bytes, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  CUdeviceptr reserve(std::uint64_t bytes);
  static CUresult map(CUdeviceptr at, std::uint64_t bytes, Handle handle, std::uint64_t offset = 0);
  static CUresult access(CUdeviceptr at, std::uint64_t bytes,
                         CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                         int device = 0);
  static CUresult unmap(CUdeviceptr at, std::uint64_t bytes);
  static CUresult release(Handle handle);
  // Of what reserve() gave.
  CUresult free_addresses(CUdeviceptr at);
  // Exports it to a driver that answers `result`, and remembers what that was asked for.
  CUresult lend(Handle handle, CUresult result);

  // Created, mapped and accessible; its number is last(1).
  CUdeviceptr make(std::uint64_t bytes, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  // The number that was created as the `back`th before the end.
  Handle last(std::size_t back) const { return created_[created_.size() - back]; }
  void bring_back(CUdeviceptr at);
  // Nothing is left to be ended after the test.
  void forget_all();

  Handle lent_ = 0;

 private:
  std::mutex lock_;
  std::vector<Handle> created_;
  std::map<CUdeviceptr, std::uint64_t> sizes_;
};

}  // namespace switchyard::shim::testing
