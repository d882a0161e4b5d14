// A test about a process that was started preloaded: it becomes one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr || std::strstr(preloaded, SHIM_PATH) == nullptr) {
    ::setenv("LD_PRELOAD", SHIM_PATH, 1);
    ::setenv("LD_LIBRARY_PATH", FAKE_LIBRARIES, 1);
    ::execv("/proc/self/exe", argv);
    std::perror("execv");
    return 1;
  }
  return RUN_ALL_TESTS();
}
