// The ioctl behind ours: libcuda talks to the kernel through libc's, so a preload sees it.
//
// Threading: any thread.
#pragma once

namespace switchyard::shim::rm {

// The ioctl that libcuda would reach without us: looked up from its own handle, so that a simulated
// driver, which brings an ioctl of its own, can answer. Sets errno like ioctl.
int driver_ioctl(int fd, unsigned long request, void* argument);
// The same for what isn't a request to the kernel's RM: it goes where it always went, once that was
// found. Before, it goes to the kernel: to look takes the loader's lock, which a thread may hold
// that runs a library's constructor and waits for this one. So libraries that interpose ioctl as
// well are passed over until then.
int next_ioctl(int fd, unsigned long request, void* argument);
// Finds the ioctl behind ours. It takes the loader's lock, so only callers that take it anyway may
// call this.
void find_next_ioctl();

}  // namespace switchyard::shim::rm
