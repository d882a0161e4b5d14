// Fails a case that takes more than its budget, because each change waits for all cases.
//
// Concept. A case may use 75 s of CPU time, its children included, and may wait for as long beside
// that. The aim is 10 s: the slowest use up to 18 s alone, and 66 s beside others, for they spin
// until something happens. Under a sanitizer both are 150 s. CPU time is nearly the same on a
// loaded machine. The time that a case waits is its wall time less ten times its CPU time: a loaded
// machine may be ten times as slow. A case that was unlucky all the same passes when it runs again
// (scripts/run_tests.sh). SWITCHYARD_TEST_BUDGET says another number of seconds.
// SWITCHYARD_TEST_COSTS names a file that gets a line for each case: CPU time, wall time, name.
//
// Threading: cases of a program run one after the other.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kUsualBudget = 150;
#else
constexpr double kUsualBudget = 75;
#endif
constexpr double kSlowest = 10;

double budget() {
  const char* said = std::getenv("SWITCHYARD_TEST_BUDGET");
  return said != nullptr ? std::strtod(said, nullptr) : kUsualBudget;
}

double cpu_seconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(who, &used);
    for (const timeval& part : {used.ru_utime, used.ru_stime}) {
      sum += static_cast<double>(part.tv_sec) + static_cast<double>(part.tv_usec) / 1e6;
    }
  }
  return sum;
}

class Budget : public testing::EmptyTestEventListener {
  using Clock = std::chrono::steady_clock;

  void OnTestStart(const testing::TestInfo&) override {
    cpu_ = cpu_seconds();
    began_ = Clock::now();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const double cpu = cpu_seconds() - cpu_;
    const double wall = std::chrono::duration<double>(Clock::now() - began_).count();
    EXPECT_LE(cpu, budget()) << "seconds of CPU time: above the budget of a case";
    EXPECT_LE(wall - kSlowest * cpu, budget()) << "seconds of waiting: above the budget of a case";
    note(test, cpu, wall);
  }
  static void note(const testing::TestInfo& test, double cpu, double wall) {
    const char* path = std::getenv("SWITCHYARD_TEST_COSTS");
    std::FILE* file = path != nullptr ? std::fopen(path, "ae") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, "%.2f %.2f %s.%s\n", cpu, wall, test.test_suite_name(), test.name());
    std::fclose(file);
  }

  double cpu_ = 0;
  Clock::time_point began_;
};

const bool g_appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new Budget);
  return true;
}();

}  // namespace
