// The door ioctl: libcuda talks to the kernel through libc's ioctl, so a preload sees it.
//
// Threading: any thread.
#pragma once

namespace switchyard::shim::doors {

// The ioctl that libcuda would reach without us: looked up from its own handle, so that a simulated
// driver, which brings an ioctl of its own, can answer. Sets errno like ioctl.
int driver_ioctl(int fd, unsigned long request, void* argument);

}  // namespace switchyard::shim::doors
