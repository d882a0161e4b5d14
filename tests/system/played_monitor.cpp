#include "tests/system/played_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "tests/support/sockets.h"

namespace switchyard::system_tests {
namespace {

constexpr int kBeatMs = 50;

bool receive(int fd, void* data, std::size_t bytes) {
  return ::recv(fd, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

bool ready(int fd) {
  pollfd file{fd, POLLIN, 0};
  return ::poll(&file, 1, kBeatMs) > 0;
}

}  // namespace

PlayedMonitor::PlayedMonitor(std::string path) : path_(std::move(path)) {
  listener_ = test_support::listen_at(path_);
  thread_ = std::thread([this] { serve(); });
}

void PlayedMonitor::close(std::uint32_t why) const {
  arm();
  gate().closed.store(why);
}

void PlayedMonitor::open() const {
  gate().closed.store(0);
  ::syscall(SYS_futex, &gate().closed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void PlayedMonitor::vanish() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

void PlayedMonitor::serve() {
  int client = -1;
  while (!over_) {
    if (page_ != nullptr) page_->head.heartbeat.fetch_add(1);
    if (!ready(client < 0 ? listener_ : client)) continue;
    if (client < 0) {
      client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client >= 0 && !welcome(client)) break;
    } else if (!answer(client)) {
      break;
    }
  }
  ::unlink(path_.c_str());
  ::close(listener_);
  if (client >= 0) ::close(client);
}

bool PlayedMonitor::welcome(int fd) {
  wire::FrameHeader header{};
  if (!receive(fd, &header, sizeof(header)) || header.kind != wire::kHello ||
      !receive(fd, &hello_, sizeof(hello_))) {
    return false;
  }
  const int memfd = ::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (::ftruncate(memfd, abi::kPageBytes) != 0 || ::fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return false;
  }
  page_ = static_cast<abi::Page*>(
      ::mmap(nullptr, abi::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  page_->head.lane_count = hello_.lane_count;
  std::memcpy(page_->card.text, hello_.card, sizeof(hello_.card));
  std::copy_n(hello_.sections, hello_.section_count, page_->directory);
  page_->head.sections = hello_.section_count;
  page_->head.magic = abi::kMagic;
  const std::vector<int> fds = {memfd, ::eventfd(0, EFD_NONBLOCK), ::eventfd(0, EFD_NONBLOCK)};
  struct {
    wire::FrameHeader header;
    wire::Welcome welcome;
  } reply{{wire::kMagic, wire::kWelcome, sizeof(wire::Welcome), header.id},
          {abi::kLayoutVersion, abi::kPageBytes, 1, 0}};
  const bool sent = test_support::send_with(fd, &reply, sizeof(reply), fds);
  for (const int each : fds) ::close(each);
  joined_ = sent;
  return sent;
}

bool PlayedMonitor::answer(int fd) {
  wire::FrameHeader header{};
  wire::Charge charge{};
  if (!receive(fd, &header, sizeof(header)) || !receive(fd, &charge, sizeof(charge))) return false;
  page_->lanes[charge.lane % abi::kMaxGpus].credit_bytes.fetch_add(charge.bytes);
  struct {
    wire::FrameHeader header;
    wire::Charged charged;
  } reply{{wire::kMagic, wire::kCharged, sizeof(wire::Charged), header.id},
          {wire::kGranted, 0, charge.bytes, 0}};
  return ::send(fd, &reply, sizeof(reply), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(reply));
}

}  // namespace switchyard::system_tests
