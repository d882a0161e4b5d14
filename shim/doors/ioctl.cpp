#include "shim/doors/ioctl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "shim/dl.h"
#include "shim/driver.h"
#include "shim/slices/groups.h"
#include "shim/slices/rm.h"

namespace switchyard::shim::doors {
namespace {

using Ioctl = int (*)(int, unsigned long, ...);
std::atomic<Ioctl> g_next{nullptr};
std::atomic<Ioctl> g_drivers{nullptr};

// Only RM's requests are looked up through the driver; everything else goes where it always went.
// Each is looked up once: dlsym takes the loader's lock, which a thread that stands in the driver
// behind a closed gate may hold.
Ioctl next_ioctl(bool for_driver) {
  if (for_driver && driver_handle() != nullptr && real_dlsym() != nullptr) {
    Ioctl drivers = g_drivers.load(std::memory_order_relaxed);
    if (drivers == nullptr) {
      drivers = reinterpret_cast<Ioctl>(real_dlsym()(driver_handle(), "ioctl"));
      g_drivers.store(drivers, std::memory_order_relaxed);
    }
    return drivers;
  }
  Ioctl next = g_next.load(std::memory_order_relaxed);
  if (next == nullptr && real_dlsym() != nullptr) {
    next = reinterpret_cast<Ioctl>(real_dlsym()(RTLD_NEXT, "ioctl"));
    g_next.store(next, std::memory_order_relaxed);
  }
  return next;
}

int forward(bool for_driver, int fd, unsigned long request, void* argument) {
  if (Ioctl next = next_ioctl(for_driver)) return next(fd, request, argument);
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

}  // namespace

int driver_ioctl(int fd, unsigned long request, void* argument) {
  return forward(true, fd, request, argument);
}

}  // namespace switchyard::shim::doors

// ioctl takes one optional pointer-sized argument, which the x86-64 ABI passes in the third
// register whether it is there or not, so this signature serves every caller.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            void* argument) noexcept {
  using namespace switchyard::shim;
  const bool rm_request = ((request >> 8) & 0xff) == rm::kIoctlType;
  const int result = doors::forward(rm_request, fd, request, argument);
  if (rm_request) {
    const int saved = errno;
    groups::observe(fd, request, argument, result);
    errno = saved;
  }
  return result;
}
