// The ioctl behind ours: libcuda talks to the kernel through libc's, so a preload sees it.
//
// Threading: any thread.
#pragma once

namespace switchyard::shim::rm {

// The ioctl that libcuda would reach without us. It is looked up from libcuda's own handle, because
// a simulated driver brings an ioctl of its own. Sets errno like ioctl.
int driver_ioctl(int fd, unsigned long request, void* argument);
// The same for what isn't a request to the kernel's RM: it goes where it always went, once that was
// found. Before that, it goes to the kernel. To look takes the loader's lock, and its holder may
// run a library's constructor that waits for this thread. So libraries that interpose ioctl as well
// are passed over until then.
int next_ioctl(int fd, unsigned long request, void* argument);
// Finds the ioctl behind ours. It takes the loader's lock, so only callers that take it anyway may
// call this.
void find_next_ioctl();

}  // namespace switchyard::shim::rm
