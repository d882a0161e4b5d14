#include "shim/island/server.h"

#include <stdlib.h>

#include <atomic>
#include <cstdint>

#include "shim/client/client.h"
#include "shim/client/settings.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "switchyard/uuid.h"

namespace switchyard::shim::island {
namespace {

enum Known : int { kUnread = 0, kNo = 1, kYes = 2 };

struct State {
  std::atomic<int> serves{kUnread};
  std::atomic<bool> began{false};
};
constinit State g_state;

}  // namespace

bool serves() {
  int known = g_state.serves.load(std::memory_order_relaxed);
  if (known == kUnread) {
    const char* gpu = ::getenv("SWITCHYARD_ISLAND_GPU");
    known = gpu != nullptr && gpu[0] != '\0' && !disabled() ? kYes : kNo;
    g_state.serves.store(known, std::memory_order_relaxed);
  }
  return known == kYes;
}

void group_made() {
  if (g_state.began.load(std::memory_order_relaxed) || g_state.began.exchange(true)) return;
  std::uint8_t uuid[16] = {};
  const char* gpu = ::getenv("SWITCHYARD_ISLAND_GPU");
  if (gpu == nullptr || !parse_uuid(gpu, uuid)) {
    log_line(Level::kWarn, "SWITCHYARD_ISLAND_GPU is no UUID of a GPU: this server runs unmanaged");
    return;
  }
  join_later(uuid);
}

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::island
