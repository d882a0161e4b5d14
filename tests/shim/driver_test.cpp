// The table of the driver's calls, filled by one thread while others already call.
#include "shim/driver.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "shim/dl.h"
#include "shim/entry.h"
#include "shim/table.h"

namespace switchyard::shim {
namespace {

std::function<void()> g_in_the_middle;
std::atomic<bool> g_indexed{false};

void a_call() {}

// Stops at one of the rows of driver.def, which come last.
void* find_slowly(void*, const char* name) {
  if (std::strcmp(name, "cuDeviceGetCount") == 0 && g_in_the_middle) g_in_the_middle();
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

TEST(DriverTable, ACallWaitsUntilAnotherThreadHasFilledAllOfIt) {
  std::thread other;
  std::atomic<int> answer{-1};
  g_in_the_middle = [&] {
    ASSERT_NE(g_driver.cuInit, nullptr);
    other = std::thread([&] { answer = static_cast<int>(Init::call(0)); });
    // Long enough for a call that does not wait.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(answer, -1);
  };
  EXPECT_EQ(Init::call(0), CUDA_SUCCESS);
  other.join();
  EXPECT_EQ(answer, static_cast<int>(CUDA_SUCCESS));
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
