// The table of the driver's calls, filled by one thread while others already call.
#include "shim/driver.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "shim/dl.h"
#include "shim/entry.h"
#include "shim/table.h"

namespace switchyard::shim {
namespace {

std::function<void()> g_in_the_middle;
std::recursive_mutex g_loader;
std::atomic<bool> g_indexed{false};

void a_call() {}

// Stops at one of the rows of driver.def.
void* find_slowly(void*, const char* name) {
  if (std::strcmp(name, "cuDeviceGetCount") == 0 && g_in_the_middle) {
    std::exchange(g_in_the_middle, nullptr)();
  }
  const std::lock_guard loads(g_loader);
  return reinterpret_cast<void*>(&a_call);
}

struct Rule {
  static auto* original() { return g_driver.cuInit; }
  static CUresult apply(CUresult (*)(unsigned), unsigned) {
    return g_indexed && g_driver.cuDeviceGetCount != nullptr ? CUDA_SUCCESS
                                                             : CUDA_ERROR_NOT_INITIALIZED;
  }
};
using Init = Entry<CUresult(unsigned), Rule>;

TEST(DriverTable, ACallWhileAnotherThreadLooksUpFindsAllOfIt) {
  g_in_the_middle = [] { std::thread([] { EXPECT_EQ(Init::call(0), CUDA_SUCCESS); }).join(); };
  EXPECT_EQ(Init::call(0), CUDA_SUCCESS);
}

// A library's constructor runs under the loader's lock, and dlsym takes that lock.
TEST(DriverTable, AConstructorsCallWaitsForNobodyWhoLooksUp) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::alarm(20);
        std::thread constructor;
        g_in_the_middle = [&] {
          std::atomic<bool> locked{false};
          constructor = std::thread([&] {
            const std::lock_guard loads(g_loader);
            locked = true;
            if (Init::call(0) != CUDA_SUCCESS) ::_exit(1);
          });
          while (!locked) std::this_thread::yield();
        };
        const CUresult result = Init::call(0);
        constructor.join();
        ::_exit(result == CUDA_SUCCESS ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// A child that finds the table half filled by a thread that it does not have.
int child_calls() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);  // a child that hangs dies of it
    g_in_the_middle = nullptr;
    ::_exit(Init::call(0) == CUDA_SUCCESS ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(DriverTable, AForkedChildFillsTheTableThatAnotherThreadLeftHalfFilled) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's pthread_once knows nothing of forks";
#endif
  // In a process that begins anew: a table is filled once.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        int status = -1;
        g_in_the_middle = [&] { std::thread([&] { status = child_calls(); }).join(); };
        ::_exit(Init::call(0) == CUDA_SUCCESS && status == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(DriverTable, ACallThatTheDriverLacksIsRefused) {
  struct Lacking {
    static CUresult (*original())(unsigned) { return nullptr; }
    static CUresult apply(CUresult (*)(unsigned), unsigned) { return CUDA_SUCCESS; }
  };
  const auto call = Entry<CUresult(unsigned), Lacking>::call;
  EXPECT_EQ(call(0), kNoSuchCall);
}

}  // namespace

Dlsym real_dlsym() { return find_slowly; }
void index_table() { g_indexed = true; }

}  // namespace switchyard::shim
