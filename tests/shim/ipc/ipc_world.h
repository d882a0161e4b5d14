// The engine's world with a monitor that keeps shared memory, and a driver that exports and imports
// it.
//
// Concept. A descriptor of memory is a file in memory, as long as the memory. There is one process
// here: while its memory isn't swappable it opens what it exported before, as another would.
//
// Threading: as swap_world.h.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "shim/client/client.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim::testing {

struct IpcWorld {
  std::uint32_t monitor = 1;  // 0: there is none
  bool answers = true;
  std::uint32_t verdict = wire::kTaken;  // of kShare
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<int>> shares;
  int frames = 0;
  // At each frame, before it is answered.
  std::function<void(wire::Kind)> during_frame;
  // Changes an answer to kOpenShared.
  std::function<void(wire::Shared&)> spoil;
};

extern IpcWorld* g_ipc;

// Descriptors that the monitor keeps have numbers from here on.
inline constexpr int kFirstOfMonitor = 512;

class IpcTest : public SwapTest {
 protected:
  IpcTest();
  ~IpcTest() override;

  // As cuIpcGetMemHandle, Open and Close, where the driver has no part in it.
  static CUresult get(CUipcMemHandle& handle, CUdeviceptr address);
  static CUresult open(CUdeviceptr& address, const CUipcMemHandle& handle);
  static CUresult close(CUdeviceptr address);

  static std::size_t open_files();
  // Descriptors of memory that are not the monitor's. Fit for a forked child.
  static int memory_files();
  // Neither a mapping nor a descriptor of others' memory.
  void expect_nothing_opened();

  IpcWorld ipc_;
  std::size_t files_ = 0;  // before
};

}  // namespace switchyard::shim::testing
