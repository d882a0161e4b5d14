// A monitor that a test plays: it takes one client, gives it a page, and leaves the gate to the
// test.
//
// Concept. The test makes a real monitor's decisions by arm(), close() and open(), so each moment
// of the gate can be had. vanish() is its death: the socket closes and the heartbeat stops.
//
// Threading: one thread of its own serves the socket and beats; the page's words are atomics.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "switchyard/wire.h"

namespace switchyard::system_tests {

class PlayedMonitor {
 public:
  explicit PlayedMonitor(std::string path);
  ~PlayedMonitor() { vanish(); }
  PlayedMonitor(const PlayedMonitor&) = delete;
  PlayedMonitor& operator=(const PlayedMonitor&) = delete;

  bool joined() const { return joined_; }
  const wire::Hello& hello() const { return hello_; }  // pre: joined()
  abi::Gate& gate() const { return page_->gates[0]; }
  abi::Lane& lane() const { return page_->lanes[0]; }
  abi::Memory& memory() const { return page_->memories[0]; }
  abi::Residency& residency() const { return page_->residencies[0]; }

  void arm(std::uint32_t bits = abi::kGateArmed) const { lane().attention.fetch_or(bits); }
  void close(std::uint32_t why) const;
  void open() const;
  void vanish();

 private:
  void serve();
  bool welcome(int fd);
  bool answer(int fd);

  std::string path_;
  int listener_ = -1;
  abi::Page* page_ = nullptr;  // stays mapped: a client may outlive its monitor
  wire::Hello hello_{};
  std::atomic<bool> joined_{false};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace switchyard::system_tests
