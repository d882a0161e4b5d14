// The client's side of the wire, compiled into the test. The test plays the monitor, and there are
// a driver with two GPUs and neighbours that count their calls.
//
// Threading: the service thread is the library's own and outlives each test, so what it touches
// here is atomic and never goes away.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/service.h"
#include "tests/shim/client/fake_monitor.h"

namespace switchyard::shim::testing {

// How often the neighbours were called.
struct Neighbours {
  std::atomic<int> opened{0};             // gates, because there is no monitor
  std::atomic<int> restored{0};           // slices
  std::atomic<int> opened_at_restore{0};  // gates come first: that needs nobody
  std::atomic<int> applied{0};            // slices
  std::atomic<int> movers_tried{0};       // those that could not be started
  std::atomic<int> looks{0};              // of the service thread
  std::atomic<int> views{0};
  std::atomic<int> pauses_carried{0};
  std::atomic<int> residencies_carried{0};
  std::atomic<int> communicators_carried{0};
  std::atomic<int> communicators_told{0};
  std::atomic<int> norms_carried{0};
  std::atomic<int> chosen_swappable{0};
  std::atomic<int> stays_told{0};
  std::atomic<std::uint64_t> told_bytes{0};  // to the account of lane 0, at the last move
  std::atomic<bool> frozen{false};           // the account, while a page is replaced
  std::atomic<bool> paused{false};
  std::atomic<bool> follows{false};
  std::atomic<unsigned> nvml_gpus{1};
};
extern Neighbours g_neighbours;

// How often the mover was woken.
inline std::uint32_t mover_pokes() { return process().mover.seen(); }

// The stages of the resets that ran in this process, in their order: p, c, s (shim/reset.h).
extern std::string g_forgotten;

// The GPUs of the driver; their UUIDs are 16 bytes of 0xA0 + index.
extern std::atomic<int> g_gpus;

class ClientTest : public ::testing::Test {
 protected:
  ClientTest();
  ~ClientTest() override;

  // A monitor where the client looks for one.
  FakeMonitor& monitor(const FakeMonitor::Manner& manner = {});
  FakeMonitor& current() { return *monitor_; }
  void no_monitor() { monitor_.reset(); }

  // joins, and waits until the monitor has sent its Welcome.
  void join_it();
  // The same with a monitor of the usual manner, until the service thread looks.
  void join_and_look();
  bool connected() const { return monitor_fds().socket >= 0; }

  std::string folder_;

 private:
  std::unique_ptr<FakeMonitor> monitor_;
};

// Runs the test in a process of its own: `if (!fresh()) return;` at its begin. Answers that are
// kept once per process, and threads of earlier tests, are not there.
bool fresh();
bool is_fresh();  // whether this is such a process

// How many descriptors this process has open.
int open_descriptors();

// Runs `child` in a forked child. Its answer, 0 to 255; -1: it was killed.
int in_child(const std::function<int()>& child, bool without_handlers = false);

}  // namespace switchyard::shim::testing
