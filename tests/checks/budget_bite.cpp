// Cases that take more than a budget of 0.2 s (tests/support/budget.cpp), and one that doesn't.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <thread>

namespace {

void use_the_cpu() {
  const std::clock_t end = std::clock() + CLOCKS_PER_SEC / 2;
  while (std::clock() < end) {
  }
}

TEST(Bite, UsesTheCpu) { use_the_cpu(); }

TEST(Bite, ItsChildUsesTheCpu) {
  const pid_t child = ::fork();
  if (child == 0) {
    use_the_cpu();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(Bite, Waits) { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); }

TEST(Bite, IsQuick) {}

}  // namespace
