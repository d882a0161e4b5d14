#include "tests/shim/client/fake_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "switchyard/descriptors.h"
#include "tests/support/sockets.h"

namespace switchyard::shim::testing {
namespace {

constexpr int kBeatMs = 20;
constexpr std::chrono::seconds kGenerous{60};

bool receive(int fd, void* data, std::size_t bytes) {
  return bytes == 0 || ::recv(fd, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

// A header, and how many descriptors came with it; they are closed.
bool receive_header(int fd, wire::FrameHeader& header, unsigned& along) {
  int came[wire::kMostDescriptors];
  bool lost = false;
  const bool whole = receive_with(fd, &header, sizeof(header), MSG_WAITALL, came, along, lost) ==
                     static_cast<ssize_t>(sizeof(header));
  for (unsigned i = 0; i < along; ++i) ::close(came[i]);
  return whole;
}

// The descriptors are closed.
bool send_and_close(int fd, const void* data, std::size_t bytes, const std::vector<int>& along) {
  const bool sent = test_support::send_with(fd, data, bytes, along);
  for (const int one : along) ::close(one);
  return sent;
}

template <typename Payload>
bool reply(int fd, const wire::FrameHeader& header, const Payload& payload,
           const std::vector<int>& along = {}) {
  struct {
    wire::FrameHeader header;
    Payload payload;
  } both{header, payload};
  return send_and_close(fd, &both, sizeof(both), along);
}

}  // namespace

bool eventually(const std::function<bool()>& reached) {
  const auto end = std::chrono::steady_clock::now() + kGenerous;
  while (!reached()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

FakeMonitor::FakeMonitor(std::string path, Manner manner)
    : path_(std::move(path)), manner_(std::move(manner)) {
  listener_ = test_support::listen_at(path_);
  thread_ = std::thread([this] { serve(); });
  // A sanitizer gives a thread its memory when the thread begins. A test that limits the process's
  // memory afterwards must find that done.
  while (!serves_) std::this_thread::yield();
}

void FakeMonitor::vanish() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

void FakeMonitor::hang_up() { hangs_up_ = true; }

void FakeMonitor::set(const Manner& manner) {
  const std::lock_guard hold(lock_);
  manner_ = manner;
}

FakeMonitor::Manner FakeMonitor::manner() {
  const std::lock_guard hold(lock_);
  return manner_;
}

wire::Hello FakeMonitor::hello() {
  const std::lock_guard hold(lock_);
  return hello_;
}

std::vector<wire::Charge> FakeMonitor::charges() {
  const std::lock_guard hold(lock_);
  return charges_;
}

void FakeMonitor::ring() {
  const std::lock_guard hold(lock_);
  const std::uint64_t one = 1;
  EXPECT_EQ(::write(doorbell_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

bool FakeMonitor::woken() {
  const std::lock_guard hold(lock_);
  std::uint64_t count = 0;
  return ::read(wake_, &count, sizeof(count)) > 0;
}

void FakeMonitor::drop_client() {
  const std::lock_guard hold(lock_);
  for (int* fd : {&client_, &doorbell_, &wake_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
  has_client_ = false;
}

void FakeMonitor::serve() {
  while (!over_) {
    serves_ = true;
    if (hangs_up_.exchange(false)) drop_client();
    if (has_client_ && beats) page_.load()->head.heartbeat.fetch_add(1);
    pollfd file{client_ < 0 ? listener_ : client_, POLLIN, 0};
    if (::poll(&file, 1, kBeatMs) <= 0) continue;
    if (client_ < 0) client_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client_ >= 0 && !handle()) drop_client();
  }
  ::unlink(path_.c_str());
  ::close(listener_);
  drop_client();
}

bool FakeMonitor::handle() {
  wire::FrameHeader header{};
  unsigned along = 0;
  if (!receive_header(client_, header, along)) return false;
  came_along_ += along;
  return header.kind == wire::kHello ? welcome(header) : answer(header, along);
}

bool FakeMonitor::welcome(const wire::FrameHeader& header) {
  const Manner how = manner();
  wire::Hello hello{};
  if (header.length != sizeof(hello) || !receive(client_, &hello, sizeof(hello))) return false;
  if (!how.refusal.empty()) {
    const wire::FrameHeader refused{wire::kMagic, wire::kRefused,
                                    static_cast<std::uint32_t>(how.refusal.size()), header.id};
    return send_and_close(client_, &refused, sizeof(refused), {}) &&
           send_and_close(client_, how.refusal.data(), how.refusal.size(), {});
  }
  const int memfd = ::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(memfd, static_cast<off_t>(how.file_bytes)), 0);
  if (how.sealed) {
    EXPECT_EQ(::fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  }
  auto* page = static_cast<abi::Page*>(
      ::mmap(nullptr, abi::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  if (how.file_bytes >= abi::kPageBytes) {
    page->head.lane_count = hello.lane_count;
    std::memcpy(page->card.text, hello.card, sizeof(hello.card));
    std::copy_n(hello.sections, hello.section_count, page->directory);
    if (how.spoil_directory) how.spoil_directory(page->directory[3]);
    page->head.sections = hello.section_count;
    page->head.magic = abi::kMagic;
  }
  const std::lock_guard hold(lock_);
  hello_ = hello;
  page_ = page;
  doorbell_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::vector<int> along{memfd, ::dup(doorbell_), ::dup(wake_)};
  while (along.size() > how.descriptors) {
    ::close(along.back());
    along.pop_back();
  }
  while (along.size() < how.descriptors) along.push_back(::eventfd(0, EFD_CLOEXEC));
  ++welcomed_;  // before the client knows: it may be asked at once
  const bool sent =
      reply(client_, {wire::kMagic, wire::kWelcome, sizeof(wire::Welcome), header.id},
            wire::Welcome{how.layout_version, how.page_bytes, 4711, how.features}, along);
  has_client_ = how.file_bytes >= abi::kPageBytes;
  return sent;
}

bool FakeMonitor::answer(const wire::FrameHeader& header, unsigned) {
  const Manner how = manner();
  if (header.kind == wire::kCharge || header.kind == wire::kRefresh) {
    wire::Charge charge{};
    if (!receive(client_, &charge, sizeof(charge))) return false;
    {
      const std::lock_guard hold(lock_);
      charges_.push_back(charge);
    }
    if (!how.answers) return true;
    return reply(
        client_,
        {wire::kMagic, wire::kCharged + how.kind,
         static_cast<std::uint32_t>(sizeof(wire::Charged)) + how.length, header.id + how.id},
        wire::Charged{wire::kGranted, 0, charge.bytes, 5});
  }
  wire::Share asked{};
  if (!receive(client_, &asked, sizeof(asked))) return false;
  if (!how.answers) return true;
  std::vector<int> along;
  while (along.size() < how.shared_descriptors) along.push_back(::eventfd(0, EFD_CLOEXEC));
  return reply(client_,
               {wire::kMagic, wire::kShared + how.kind, sizeof(wire::Shared), header.id + how.id},
               wire::Shared{wire::kTaken, asked.total, how.shared_descriptors, 0}, along);
}

}  // namespace switchyard::shim::testing
