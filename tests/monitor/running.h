// The whole monitor behind its real socket, for tests that speak the raw wire.
//
// Threading: the monitor has a thread of its own; a Running belongs to one thread.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "monitor/transport/listen_socket.h"
#include "monitor/transport/server.h"
#include "tests/monitor/fake_gpus.h"

namespace switchyard::monitor::test {

// A monitor in a thread of this process, on fake GPUs.
class Running {
 public:
  explicit Running(Settings settings = {}, SessionLimits limits = {})
      : settings_(std::move(settings)), limits_(limits) {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    settings_.socket = directory_ + "/monitor.sock";
    start();
  }
  ~Running() {
    stop();
    std::filesystem::remove_all(directory_);
  }
  void start() {
    std::string why;
    bool taken = false;
    place_.emplace();
    if (!place_->open(settings_.socket, why, taken)) ADD_FAILURE() << why;
    thread_ = std::thread([this, fd = place_->release_listener()] {
      FakeGpus gpus;
      gpus.uses[0] = uses;
      std::mt19937_64 random(std::random_device{}());
      Monitor monitor(gpus, settings_, steady_now(), [&random] { return random(); });
      asio::io_context io(1);
      Server server(io, monitor, limits_);
      server.listen(fd);
      io_ = &io;
      server.run();
      io_ = nullptr;
    });
    while (io_ == nullptr) std::this_thread::yield();
  }
  void stop() {
    if (asio::io_context* io = io_) io->stop();
    if (thread_.joinable()) thread_.join();
    place_.reset();
  }
  // A monitor that said good bye by itself.
  bool ended() { return io_ == nullptr; }
  const std::string& socket() const { return settings_.socket; }

  // Of its GPU, by process, from the next start on.
  std::map<pid_t, std::uint64_t> uses;

 private:
  Settings settings_;
  SessionLimits limits_;
  std::string directory_;
  std::optional<ListenSocket> place_;
  std::thread thread_;
  std::atomic<asio::io_context*> io_{nullptr};
};

}  // namespace switchyard::monitor::test
