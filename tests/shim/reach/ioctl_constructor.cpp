// A library whose constructor waits for a thread of its own that calls ioctl.
#include <sys/ioctl.h>
#include <unistd.h>

#include <thread>

namespace {

__attribute__((constructor)) void ask() {
  std::thread([] {
    winsize size{};
    ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  }).join();
}

}  // namespace
