// The ioctl behind ours: libcuda talks to the kernel through libc's, so a preload sees it.
//
// Threading: any thread.
#pragma once

namespace switchyard::shim::rm {

// The ioctl that libcuda would reach without us: looked up from its own handle, so that a simulated
// driver, which brings an ioctl of its own, can answer. Sets errno like ioctl.
int driver_ioctl(int fd, unsigned long request, void* argument);
// The same for what isn't a request to the kernel's RM: it goes where it always went.
int next_ioctl(int fd, unsigned long request, void* argument);

}  // namespace switchyard::shim::rm
