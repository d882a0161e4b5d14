// Connections of one user that claim all that a page can say, and ring: ranks, launches, timings,
// norms, memory that may leave, waits for memory. No CUDA, no GPU, no rights.
//
//     job_strangers SOCKET COUNT GPU_UUID [modest]
//
// Half of them are ranks of one job, the others are of jobs of four. They go on until standard
// input ends. Says "joined N" once all that may have joined. Modest: each is a job, and launches.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/abi.h"
#include "switchyard/collectives.h"
#include "switchyard/descriptors.h"
#include "switchyard/fd.h"
#include "switchyard/uuid.h"
#include "switchyard/wire.h"

namespace {

using namespace switchyard;

constexpr std::uint32_t kSend = static_cast<std::uint32_t>(Collective::kSend);

struct Liar {
  Fd socket, wake;
  abi::Page* page = nullptr;
  std::uint32_t rank = 0;
  std::uint64_t told = 0;
};

bool send_frame(int fd, std::uint32_t kind, const void* payload, std::size_t bytes) {
  const wire::FrameHeader header{wire::kMagic, kind, static_cast<std::uint32_t>(bytes), 1};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
  frame.append(static_cast<const char*>(payload), bytes);
  return ::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size());
}

Fd connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool there =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  return there ? std::move(fd) : Fd();
}

wire::Hello hello_of(std::size_t job, const std::uint8_t* uuid, bool modest) {
  wire::Hello out{};
  out.layout_version = abi::kLayoutVersion;
  out.lane_count = 1;
  std::memcpy(out.uuid[0], uuid, 16);
  std::snprintf(out.process, sizeof(out.process), "stranger");
  out.page_bytes = abi::kPageBytes;
  for (const abi::Section& section : abi::kSections) out.sections[out.section_count++] = section;
  JobCard card{};
  std::snprintf(card.job, sizeof(card.job), "strange-%zu", job);
  write_card_text(card, out.card);
  if (modest) return out;
  for (auto [field, room] : {std::pair{card.oversubscribe, sizeof(card.oversubscribe)},
                             {card.gradient_noise, sizeof(card.gradient_noise)}}) {
    std::snprintf(field, room, "yes");
  }
  std::snprintf(card.share, sizeof(card.share), "auto");
  std::snprintf(card.guard, sizeof(card.guard), "1%%");
  write_card_text(card, out.card);
  return out;
}

std::optional<Liar> join(const char* path, const wire::Hello& hello) {
  Liar out;
  out.socket = connect_to(path);
  if (!out.socket || !send_frame(out.socket.get(), wire::kHello, &hello, sizeof(hello))) return {};
  char answer[512];
  int came[wire::kMostDescriptors];
  unsigned count = 0;
  bool lost = false;
  if (receive_with(out.socket.get(), answer, sizeof(answer), 0, came, count, lost) <= 0) return {};
  if (count != 3) return {};
  const Fd memory(came[0]), doorbell(came[1]);
  out.wake = Fd(came[2]);
  void* at = ::mmap(nullptr, abi::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return {};
  out.page = static_cast<abi::Page*>(at);
  return out;
}

void claim(Liar& liar, std::size_t job) {
  abi::Page& page = *liar.page;
  page.lanes[0].contexts = page.lanes[0].compute_groups = page.lanes[0].in_use = 1;
  page.residencies[0].total_bytes = page.residencies[0].resident_bytes = ~0ull;
  page.residencies[0].host_bytes = ~0ull;
  for (unsigned slot = 0; slot < abi::kMostCommunicators; ++slot) {
    abi::Communicator& each = page.communicators[slot];
    each.id = 1 + job * abi::kMostCommunicators + slot;
    each.rank = liar.rank;
    each.ranks = 4096;
    each.last_kind = kSend;
    each.use = 1;
  }
  page.process.communicators_used = ~0u;
}

void put(abi::Record& at, std::uint32_t number, std::uint32_t what) {
  at.what = what;
  at.bytes = number;
  at.number = number;
}

void go_on(Liar& liar) {
  abi::Page& page = *liar.page;
  page.lanes[0].launches += 10;
  // Some are late, each for long enough to be told of.
  for (abi::Communicator& each : page.communicators) each.launched += liar.rank % 3 == 0 ? 1 : 0;
  for (unsigned i = 0; i < abi::kRecords; ++i) {
    put(page.records[i], page.process.recorded + i + 1,
        abi::collective_record(i % abi::kMostCommunicators, kSend, i));
  }
  for (unsigned i = 0; i < abi::kTimings; ++i) {
    put(page.timings[i], page.process.timed + i + 1, abi::collective_record(0, 1, i));
  }
  for (unsigned i = 0; i < abi::kNorms; ++i) {
    abi::Norm& at = page.norms[i];
    at.what = abi::kNormSummed | i % abi::kMostCommunicators;
    at.launched = ++liar.told;
    at.elements = liar.told;
    at.before = at.after = std::bit_cast<std::uint64_t>(1.0);
    at.number = page.process.normed + i + 1;
  }
  page.process.recorded += abi::kRecords;
  page.process.timed += abi::kTimings;
  page.process.normed += abi::kNorms;
  ::send(liar.wake.get(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Asks, as fast as it is answered, for all that people are told.
void ask(Fd& fd, const char* path) {
  static const std::string kAsk = R"({"op":"ps","after":0,"iterations":true})";
  if (!fd) {
    fd = connect_to(path);
    if (fd) send_frame(fd.get(), wire::kJson, kAsk.data(), kAsk.size());
    return;
  }
  static std::vector<char> room(1 << 20);
  bool any = false;
  while (::recv(fd.get(), room.data(), room.size(), MSG_DONTWAIT) > 0) any = true;
  if (any && !send_frame(fd.get(), wire::kJson, kAsk.data(), kAsk.size())) fd.reset();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint8_t uuid[16];
  if (argc < 4 || argc > 5 || !parse_uuid(argv[3], uuid)) return 2;
  const bool modest = argc == 5;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto count = static_cast<std::size_t>(std::atol(argv[2]));
  std::vector<Liar> all;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t job = modest ? i : i < count / 2 ? 0 : 1 + (i - count / 2) / 4;
    auto liar = join(argv[1], hello_of(job, uuid, modest));
    if (!liar) continue;  // refused: it has all that one user may have
    liar->rank = static_cast<std::uint32_t>(job == 0 ? i : i % 4);
    if (!modest) claim(*liar, job);
    liar->page->lanes[0].contexts = liar->page->lanes[0].in_use = 1;
    all.push_back(std::move(*liar));
  }
  std::printf("joined %zu\n", all.size());
  std::fflush(stdout);
  Fd asks;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (::poll(&input, 1, 10) == 0) {
    for (Liar& each : all) {
      if (modest) {
        each.page->lanes[0].launches += 10;
      } else {
        go_on(each);
      }
    }
    if (!modest) ask(asks, argv[1]);
  }
  return 0;
}
