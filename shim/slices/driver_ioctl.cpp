#include "shim/slices/driver_ioctl.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "shim/dl.h"
#include "shim/driver.h"

namespace switchyard::shim::rm {
namespace {

using Ioctl = int (*)(int, unsigned long, ...);
struct State {
  std::atomic<Ioctl> next{nullptr};
  std::atomic<Ioctl> drivers{nullptr};
};
constinit State g_state;

// Only RM's requests are looked up through the driver; everything else goes where it always went.
// Each is looked up once: dlsym takes the loader's lock, which a thread that stands in the driver
// behind a closed gate may hold.
Ioctl find_ioctl(bool for_driver) {
  if (for_driver && driver_handle() != nullptr && real_dlsym() != nullptr) {
    Ioctl drivers = g_state.drivers.load(std::memory_order_relaxed);
    if (drivers == nullptr) {
      drivers = reinterpret_cast<Ioctl>(real_dlsym()(driver_handle(), "ioctl"));
      g_state.drivers.store(drivers, std::memory_order_relaxed);
    }
    return drivers;
  }
  return g_state.next.load(std::memory_order_relaxed);
}

int forward(bool for_driver, int fd, unsigned long request, void* argument) {
  if (Ioctl next = find_ioctl(for_driver)) return next(fd, request, argument);
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

}  // namespace

void find_next_ioctl() {
  if (g_state.next.load(std::memory_order_relaxed) != nullptr || real_dlsym() == nullptr) return;
  g_state.next.store(reinterpret_cast<Ioctl>(real_dlsym()(RTLD_NEXT, "ioctl")),
                     std::memory_order_relaxed);
}

int driver_ioctl(int fd, unsigned long request, void* argument) {
  return forward(true, fd, request, argument);
}

int next_ioctl(int fd, unsigned long request, void* argument) {
  return forward(false, fd, request, argument);
}

}  // namespace switchyard::shim::rm
