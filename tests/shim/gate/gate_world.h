// A made-up driver that writes down what is put into which stream, for the gate's tests.
//
// Concept. Launches and the gate's own waits and writes append one word each to `log`: "launch",
// "wait", "write 3". Writes take effect when the test says that the GPU has run.
//
// Threading: the log is locked.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "shim/gate/gate.h"
#include "shim/gate/hold.h"
#include "shim/rules/launch.h"
#include "shim/rules/stream_ordered.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim::testing {

using Log = std::vector<std::string>;

struct GateWorld {
  std::mutex lock;
  std::map<CUstream, Log> log;
  std::vector<std::pair<CUdeviceptr, std::uint32_t>> writes;  // not yet done
  CUresult wait_result = CUDA_SUCCESS;
  CUresult write_result = CUDA_SUCCESS;
  CUresult batch_result = CUDA_SUCCESS;  // of a write and a wait at once
  int batches = 0;
  CUresult query_result = CUDA_ERROR_NOT_READY;
  CUresult register_result = CUDA_SUCCESS;
  int registrations = 0;
  std::function<void()> during_registration;
  std::function<void(CUstream)> during_launch;
  std::function<void()> during_wait;  // while a wait is put into a stream
  std::function<void()> during_query;
  std::function<void()> during_record;  // of an event
};

extern GateWorld* g_gate_world;

inline CUstream stream_number(std::uintptr_t n) { return reinterpret_cast<CUstream>(0x10000 * n); }

// Another thread that begins a capture. The made-up driver refuses it, so that none is left.
class CaptureElsewhere {
 public:
  // Returns once it is counted, and a moment later.
  void begin(CUstream stream) {
    thread_ = std::thread([this, stream] {
      rules::begin_capture(
          [this](CUstream) {
            in_the_driver_ = true;
            return CUDA_ERROR_INVALID_VALUE;
          },
          stream);
    });
    while (process().captures.load() == 0 && !in_the_driver_) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  bool in_the_driver() const { return in_the_driver_; }
  void join() { thread_.join(); }

 private:
  std::atomic<bool> in_the_driver_ = false;
  std::thread thread_;
};

class GateTest : public EngineTest {
 protected:
  GateTest();
  ~GateTest() override;

  abi::Gate& gate() { return page().gates[0]; }
  void arm(std::uint32_t bits = abi::kGateArmed) { lane().attention.store(bits); }
  // A page of a monitor: mapped over the zeroes, with its view.
  int new_page();

  CUresult launch(CUstream stream);
  CUresult launch_per_thread(CUstream stream);
  void launch(CUstream stream, int times) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(launch(stream), CUDA_SUCCESS);
  }
  CUresult synchronise();
  // The GPU does all that was put.
  void gpu_runs();
  Log log(CUstream stream);
  bool numbered() { return gate().submitted[0].load() != gate().done[0].load(); }

  GateWorld gpu_;
  CUstream first_ = stream_number(1), second_ = stream_number(2);
};

}  // namespace switchyard::shim::testing
