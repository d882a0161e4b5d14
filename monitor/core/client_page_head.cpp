// The head of a page and its bells: how it is made, its card, and whether both sides are there.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "monitor/core/client_page.h"
#include "monitor/core/store_if_other.h"
#include "monitor/platform/receive.h"

namespace switchyard::monitor {
namespace {

namespace ipc = boost::interprocess;

// What mapped_region wants to see of something that can be mapped.
struct Mappable {
  int fd;
  ipc::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

// Of those that one look forgets. A client that rings all the time is heard again later.
constexpr int kMostRings = 64;

// Datagrams: an end whose other end is closed reports no hang-up, and writing to it raises no
// signal. Libraries that expect an eventfd rely on both.
bool make_bell(Fd& rings, Fd& hears) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  // One ring says all: the kernel takes the smallest queue that it knows.
  const int least = 1;
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
  rings = Fd(ends[0]);
  hears = Fd(ends[1]);
  return true;
}

}  // namespace

std::unique_ptr<ClientPage> ClientPage::make(unsigned lane_count, std::string& why,
                                             const PageDirectory& directory) {
  const auto fail = [&why](const char* what) {
    why = std::string("making the page: ") + what + ": " + std::strerror(errno);
    return nullptr;
  };
  std::unique_ptr<ClientPage> made(new ClientPage);
  made->directory_ = directory;
  made->lane_count_ = std::min(lane_count, directory.count(abi::SectionId::kLanes));
  made->memfd_ = Fd(::memfd_create("switchyard-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made->memfd_) return fail("memfd_create");
  if (::ftruncate(made->memfd_.get(), made->bytes()) != 0) return fail("ftruncate");
  // The size is sealed before anybody else has it: nobody can make the other side fault.
  if (::fcntl(made->memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail("F_ADD_SEALS");
  }
  if (!make_bell(made->doorbell_, made->clients_doorbell_) ||
      !make_bell(made->clients_wake_, made->wake_)) {
    return fail("socketpair");
  }
  // Nothing is ever read here, so nothing may wait here that takes time to close (closer.h).
  ::shutdown(made->doorbell_.get(), SHUT_RD);
  try {
    ipc::mapped_region(Mappable{made->memfd_.get()}, ipc::read_write, 0, made->bytes())
        .swap(made->region_);
  } catch (const ipc::interprocess_exception& error) {
    why = std::string("mapping the page: ") + error.what();
    return nullptr;
  }
  abi::Head& head = made->head();
  head.layout_version.store(abi::kLayoutVersion, std::memory_order_relaxed);
  head.page_bytes.store(made->bytes(), std::memory_order_relaxed);
  head.monitor_pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
  head.lane_count.store(made->lane_count_, std::memory_order_relaxed);
  const std::vector<abi::Section> served = directory.served();
  std::memcpy(static_cast<void*>(&head + 1), served.data(), served.size() * sizeof(abi::Section));
  head.sections.store(static_cast<std::uint32_t>(served.size()), std::memory_order_relaxed);
  return made;
}

void ClientPage::drop_sent() {
  memfd_.reset();
  clients_doorbell_.reset();
  clients_wake_.reset();
}

void ClientPage::publish() { head().magic.store(abi::kMagic, std::memory_order_release); }

void ClientPage::write_pause(bool paused, std::uint64_t until_ns) {
  store_if_other(head().pause_until_ns, until_ns);
  store_if_other(head().paused, paused ? 1u : 0u);
}

void ClientPage::set_card(const JobCard& card) {
  auto& to = element<abi::Card>(abi::SectionId::kCard);
  CardText text;
#if defined(SWITCHYARD_SUCCESSOR_MORE)
  JobCard later = card;
  if (later.unknown[0] == '\0') std::memcpy(later.unknown, "made_up=7", 10);
  write_card_text(later, text);
#else
  write_card_text(card, text);
#endif
  // Odd while the card is being written. The value is the monitor's to choose, so what the client
  // may have put there only shows in its own copy.
  const std::uint32_t before = to.seq.load(std::memory_order_relaxed) & ~1u;
  to.seq.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(to.text, text, sizeof(text));
  to.seq.store(before + 2, std::memory_order_release);
}

void ClientPage::set_heartbeat(std::uint64_t beat) {
  head().heartbeat.store(beat, std::memory_order_relaxed);
}

void ClientPage::ring() {
  // A full queue already says "look"; EAGAIN is as good as success.
  const char bell = 1;
  [[maybe_unused]] const ssize_t ignored =
      ::send(doorbell_.get(), &bell, sizeof(bell), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool ClientPage::answer_wake(std::vector<Fd>& came) {
  int rung = 0;
  char bell = 0;
  bool lost = false;
  while (rung < kMostRings && receive(wake_.get(), std::span(&bell, 1), came, lost) >= 0) ++rung;
  return rung > 0;
}

}  // namespace switchyard::monitor
