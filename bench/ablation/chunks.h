// A model's memory: reserved addresses, and the chunks of physical memory behind them.
//
// Concept. A chunk comes and goes by the calls that shim/swap/memory/range_table.cpp uses, so that
// a move of these takes as long as the library's. It may also be mapped from memory of the host, at
// the same address.
//
// Threading: one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/ablation/calls.h"

namespace switchyard::bench::ablation {

using Handle = CUmemGenericAllocationHandle;

class Chunks {
 public:
  // Addresses alone; the last chunk is what is left over.
  Chunks(std::size_t bytes, std::size_t chunk_bytes);
  ~Chunks();
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  std::size_t bytes() const { return bytes_; }
  unsigned count() const { return static_cast<unsigned>(handles_.size()); }
  CUdeviceptr address(unsigned at = 0) const { return address_ + offset(at); }
  std::size_t offset(unsigned at) const { return at * chunk_bytes_; }
  std::size_t bytes(unsigned at) const;

  // Puts memory of the device behind it.
  void bring(unsigned at);
  // Behind several that follow each other, whose access is given by one call.
  void bring_run(unsigned first, unsigned count);
  // Takes away what is behind it, if anything is.
  void send_away(unsigned at);
  // Its two steps. Several chunks that follow each other may be unmapped by one call, which the
  // driver may refuse.
  CUresult unmap_together(unsigned first, unsigned count) const;
  void release(unsigned at);
  void bring_all();
  void send_all_away();

  // Memory of the host of the chunk's size, behind it too; the caller keeps the handle. The access
  // of all is given at the end.
  void map_host(unsigned at, Handle handle);
  void give_access();
  void unmap(unsigned at);

 private:
  std::size_t bytes_;
  std::size_t chunk_bytes_;
  CUdeviceptr address_ = 0;
  std::vector<Handle> handles_;
};

// Memory of the host by handles that the device can map. Where the driver has none, `refusal` says
// which call it refused, and how.
struct HostHandles {
  std::vector<Handle> handles;
  std::optional<std::string> refusal;
};
HostHandles make_host_handles(const Chunks& like);

std::string refused(const char* call, CUresult result);

}  // namespace switchyard::bench::ablation
