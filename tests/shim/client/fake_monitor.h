// A monitor that a unit test plays for the client's side of the wire.
//
// Concept. It takes one client after another on a real unix socket and gives each a page of its
// own, a doorbell and a wake. The test says how it answers, whether it beats, and looks at what
// came.
//
// Threading: one thread of its own serves the socket; every method may be called by any thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "switchyard/wire.h"

namespace switchyard::shim::testing {

// Waits for what must come, however slow the machine. False: it did not come.
bool eventually(const std::function<bool()>& reached);

class FakeMonitor {
 public:
  // How it says Welcome, and how it answers requests.
  struct Manner {
    std::string refusal = {};  // not empty: it refuses with this text
    std::uint32_t layout_version = abi::kLayoutVersion;
    std::uint32_t page_bytes = abi::kPageBytes;
    std::uint32_t features = wire::kSharesMemory;
    unsigned long file_bytes = abi::kPageBytes;
    bool sealed = true;
    std::function<void(abi::Section&)> spoil_directory = {};  // one entry of it
    unsigned descriptors = 3;                                 // that go with Welcome
    // Added to what is right in each answer.
    std::uint32_t id = 0, kind = 0, length = 0;
    bool answers = true;
    unsigned shared_descriptors = 0;  // that go with kShared
  };

  FakeMonitor(std::string path, Manner manner);
  ~FakeMonitor() { vanish(); }
  FakeMonitor(const FakeMonitor&) = delete;
  FakeMonitor& operator=(const FakeMonitor&) = delete;

  void vanish();   // its death: the sockets close and the heartbeat stops
  void hang_up();  // closes the client's connection alone
  void set(const Manner& manner);
  std::atomic<bool> beats{true};

  int welcomed() const { return welcomed_; }  // clients so far
  bool has_client() const { return has_client_; }
  // Of the last client. pre: one was welcomed.
  wire::Hello hello();
  abi::Page& page() { return *page_.load(); }
  void ring();
  bool woken();  // whether the client rang since the last time

  std::vector<wire::Charge> charges();
  unsigned came_along() const { return came_along_; }  // descriptors that came with requests

 private:
  void serve();
  bool welcome(const wire::FrameHeader& header);
  bool answer(const wire::FrameHeader& header, unsigned along);
  bool handle();
  void drop_client();
  Manner manner();

  std::string path_;
  int listener_ = -1;
  int client_ = -1;
  int doorbell_ = -1;
  int wake_ = -1;
  std::mutex lock_;
  Manner manner_;
  wire::Hello hello_{};
  std::vector<wire::Charge> charges_;
  std::atomic<abi::Page*> page_{nullptr};  // stays mapped: the client may outlive its monitor
  std::atomic<int> welcomed_{0};
  std::atomic<bool> has_client_{false};
  std::atomic<unsigned> came_along_{0};
  std::atomic<bool> serves_{false};
  std::atomic<bool> over_{false};
  std::atomic<bool> hangs_up_{false};
  std::thread thread_;
};

}  // namespace switchyard::shim::testing
