// The calls of virtual memory management as an application makes them, by the rules, over the
// made-up driver of swap_world.h.
//
// Concept. Mappings and references that a test leaves are ended after it. So the tables, which are
// the process's, are empty for the next.
//
// Threading: the static ones are for any thread; the others remember, for the test's own.
#pragma once

#include "shim/swap/calls/handles.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim::testing {

using swap::Handle;

class HandlesTest : public SwapTest {
 public:
  static CUmemAllocationProp properties(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  // The driver itself is not to be asked.
  static CUresult try_create(Handle& handle, std::uint64_t bytes,
                             CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  static CUresult map(CUdeviceptr at, std::uint64_t bytes, Handle handle, std::uint64_t offset = 0);
  static CUresult access(CUdeviceptr at, std::uint64_t bytes,
                         CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                         int device = 0);
  static CUresult unmap(CUdeviceptr at, std::uint64_t bytes);
  static CUresult release(Handle handle);

 protected:
  ~HandlesTest() override;

  Handle create(std::uint64_t bytes, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  CUdeviceptr reserve(std::uint64_t bytes);
  // Of what reserve() gave.
  CUresult free_addresses(CUdeviceptr at);
  // Exports it to a driver that answers `result`, and remembers what that was asked for.
  CUresult lend(Handle handle, CUresult result);

  // Created, mapped and accessible; its number is last(1).
  CUdeviceptr make(std::uint64_t bytes, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE);
  // The number that was created as the `back`th before the end.
  Handle last(std::size_t back) const { return created_[created_.size() - back]; }
  void bring_back(CUdeviceptr at);

  Handle lent_ = 0;

 private:
  std::mutex lock_;  // a test has one thread more, at times
  std::vector<Handle> created_;
  std::map<CUdeviceptr, std::uint64_t> sizes_;
};

}  // namespace switchyard::shim::testing
