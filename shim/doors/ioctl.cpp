// The door ioctl: who makes channel groups makes them by a request that passes here.
//
// Threading: any thread.
#include <errno.h>

#include "shim/slices/driver_ioctl.h"
#include "shim/slices/groups.h"
#include "shim/slices/rm.h"

// ioctl takes one optional pointer-sized argument. The x86-64 ABI passes it in the third register
// whether it is there or not, so this signature serves every caller.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            void* argument) noexcept {
  using namespace switchyard::shim;
  const bool rm_request = ((request >> 8) & 0xff) == rm::kIoctlType;
  const int result =
      rm_request ? rm::driver_ioctl(fd, request, argument) : rm::next_ioctl(fd, request, argument);
  if (rm_request) {
    const int saved = errno;
    groups::observe(fd, request, argument, result);
    errno = saved;
  }
  return result;
}
