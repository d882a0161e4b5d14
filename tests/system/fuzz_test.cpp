// Random driver calls, valid and not: the library answers as the driver does, and nothing crashes.
//
// Concept. job_fuzz prints what each call answered. One seed is played without the library, in a
// plain job, in a job with a quota, and in a swappable job. The answers must be equal, except that
// a quota refuses memory. From its first refusal on the program is another one, and only has to
// end.
#include <sstream>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

constexpr char kSteps[] = "80";

class Fuzz : public Scene, public ::testing::WithParamInterface<int> {
 protected:
  Words command() const {
    return {built("tests/jobs/job_fuzz"), std::to_string(GetParam()), kSteps};
  }
  std::string played(const Words& options) {
    const Child::End end = job(options, command()).finish(kLimit);
    EXPECT_EQ(end.status, 0) << "with " << options.back() << " after: " << last_line(end.out);
    return end.out;
  }

  static std::string last_line(const std::string& text) {
    const auto end = text.find_last_not_of('\n');
    const auto begin = text.find_last_of('\n', end);
    return text.substr(begin == std::string::npos ? 0 : begin + 1);
  }

  // The first line of each that differs; two empty ones when none does.
  static std::pair<std::string, std::string> difference(const std::string& a,
                                                        const std::string& b) {
    std::istringstream of_a(a);
    std::istringstream of_b(b);
    for (std::string line_a, line_b; of_a || of_b;) {
      line_a.clear();
      line_b.clear();
      std::getline(of_a, line_a);
      std::getline(of_b, line_b);
      if (line_a != line_b) return {line_a, line_b};
    }
    return {};
  }
};

TEST_P(Fuzz, AnswersAreTheDriversOwn) {
  auto daemon = monitor();
  const Child::End plain = run(command());
  ASSERT_EQ(plain.status, 0) << last_line(plain.out);
  const auto same = std::pair<std::string, std::string>{};
  EXPECT_EQ(difference(plain.out, played({"--require"})), same);
  EXPECT_EQ(difference(plain.out, played({"--require", "--swappable"})), same);
  const auto [there, here] = difference(plain.out, played({"--require", "--memory", "96MiB"}));
  EXPECT_TRUE(here.empty() || here.find(" 2 ") != std::string::npos)
      << "without a quota '" << there << "', with one '" << here << "'";
}

INSTANTIATE_TEST_SUITE_P(Seeds, Fuzz, ::testing::Range(1, 5));

}  // namespace
}  // namespace switchyard::system_tests
