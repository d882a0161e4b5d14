#include "shim/client/hello.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "shim/client/neighbours.h"
#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/driver.h"
#include "shim/log.h"
#include "shim/own_fd.h"

namespace switchyard::shim {
namespace {

struct State {
  Gpus gpus = {};
};
constinit State g_state;

// The GPU's contexts of this process will be the MPS server's. Older drivers don't know the
// question, older headers not its name.
std::uint32_t under_mps(CUdevice device) {
  constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);
  int enabled = 0;
  const auto ask = driver().cuDeviceGetAttribute;
  return ask != nullptr && ask(&enabled, kMpsEnabled, device) == CUDA_SUCCESS && enabled != 0;
}

void list_cuda_gpus(wire::Hello& hello, bool rejoin) {
  hello.lane_count = g_state.gpus.count;
  for (std::uint32_t i = 0; i < g_state.gpus.count; ++i) {
    ::memcpy(hello.uuid[i], g_state.gpus.uuid[i], sizeof(hello.uuid[i]));
    // Memory that was allocated before there was any monitor was never granted: it becomes our
    // debt.
    if (rejoin) hello.used_bytes[i] = process().used_bytes[i].load(std::memory_order_relaxed);
  }
}

void read_process_name(wire::Hello& hello) {
  const int fd = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = ::read(fd, hello.process, sizeof(hello.process) - 1);
  close_file(fd);
  for (ssize_t i = 0; i < got; ++i) {
    if (hello.process[i] == '\n') hello.process[i] = '\0';
  }
}

}  // namespace

const Gpus& known_gpus() { return g_state.gpus; }

void forget_gpus() { g_state.gpus.count = 0; }

void exchange_known_gpus(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]) {
  for (std::uint32_t i = 0; i < g_state.gpus.count; ++i) {
    std::uint8_t(&known)[16] = g_state.gpus.uuid[i];
    const bool is_one = ::memcmp(known, one, sizeof(known)) == 0;
    if (!is_one && ::memcmp(known, other, sizeof(known)) != 0) continue;
    ::memcpy(known, is_one ? other : one, sizeof(known));
    abi::Lane& lane = page().lanes[i];
    if (lane.in_use.load(std::memory_order_relaxed) == 0) continue;
    lane.in_use.store(0, std::memory_order_relaxed);  // who looks meanwhile finds no GPU
    std::atomic_thread_fence(std::memory_order_release);
    ::memcpy(lane.uuid, known, sizeof(lane.uuid));
    lane.places.fetch_add(1, std::memory_order_release);
    lane.in_use.store(1, std::memory_order_release);
  }
}

void ask_for_gpus() {
  int count = 0;
  const Driver& calls = driver();
  if (g_state.gpus.count != 0 || calls.cuDeviceGetCount == nullptr ||
      calls.cuDeviceGetCount(&count) != CUDA_SUCCESS) {
    return;
  }
  g_state.gpus.nameless = calls.cuDeviceGetUuid_v2 == nullptr;
  if (g_state.gpus.nameless) return;
  g_state.gpus.seen = static_cast<std::uint32_t>(count);
  if (count > static_cast<int>(abi::kMaxGpus)) {
    log_line(
        Level::kWarn,
        "this process sees %d GPUs, and the first %u of them are shared: on the others nothing "
        "is held or counted, and no memory of it is swappable; choose with "
        "CUDA_VISIBLE_DEVICES",
        count, abi::kMaxGpus);
    count = abi::kMaxGpus;
  }
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    CUuuid uuid{};
    if (calls.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
        calls.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
      g_state.gpus.nameless = true;
      g_state.gpus.count = 0;
      return;
    }
    ::memcpy(g_state.gpus.uuid[i], &uuid, sizeof(g_state.gpus.uuid[i]));
    g_state.gpus.under_mps[i] = under_mps(device);
    g_state.gpus.count = static_cast<std::uint32_t>(i) + 1;
  }
}

void know_gpu(const std::uint8_t (&uuid)[16]) {
  if (g_state.gpus.count != 0) return;
  ::memcpy(g_state.gpus.uuid[0], uuid, sizeof(uuid));
  g_state.gpus.count = 1;
}

void fill_hello(wire::Hello& hello, std::uint32_t flags) {
  hello.layout_version = abi::kLayoutVersion;
  hello.flags = flags;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.page_bytes = abi::kPageBytes;
  for (const abi::Section& section : abi::kSections) {
    hello.sections[hello.section_count++] = section;
  }
  JobCard card;
  // What the last monitor understood, `set` included, and what this library does not know of it.
  // That monitor is gone, so nobody writes this now. It may have died while it wrote.
  const bool rejoins = (flags & wire::kRejoin) != 0;
  if (rejoins && read_card_text(page().card.text, card)) {
    ::memcpy(hello.card, page().card.text, sizeof(hello.card));
  } else {
    read_before(card);
    write_card_text(card, hello.card);
  }
  if (rejoins) neighbours::tell_pause(hello);
  read_process_name(hello);
  if ((flags & wire::kObserver) != 0) {
    hello.lane_count = neighbours::list_observed_gpus(hello.uuid);
  } else {
    list_cuda_gpus(hello, rejoins);
  }
}

}  // namespace switchyard::shim
