// Root's monitor asks the holders of claims: whom, for how long, and what counts as an answer.
#include "monitor/transport/takeover.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "switchyard/claim.h"
#include "switchyard/fd.h"

namespace switchyard::monitor::test {
namespace {

constexpr uid_t kAnother = 47112;
constexpr Time kNever = std::chrono::seconds(30);          // a wait that no test reaches
constexpr Time kClockTick = std::chrono::milliseconds(1);  // poll() counts in these

std::string gpu_of_test() { return "GPU-takeover-" + std::to_string(::getpid()); }

// A process that holds the claim on a GPU, and plays with the first connection to it.
class ClaimHolder {
 public:
  ClaimHolder(const std::string& uuid, uid_t uid, const std::function<void(int)>& plays) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      sockaddr_un address{};
      const socklen_t length = claim_address(uuid, address);
      const int claim = ::socket(AF_UNIX, SOCK_STREAM, 0);
      const bool listens = ::setresuid(uid, uid, uid) == 0 &&
                           ::bind(claim, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                           ::listen(claim, 4) == 0;
      if (::write(ready[1], &listens, 1) != 1) ::_exit(9);
      plays(::accept(claim, nullptr, nullptr));
      ::_exit(0);
    }
    bool listens = false;
    EXPECT_EQ(::read(ready[0], &listens, 1), 1);
    EXPECT_TRUE(listens);
    for (const int end : ready) ::close(end);
  }
  ClaimHolder(const ClaimHolder&) = delete;
  ClaimHolder& operator=(const ClaimHolder&) = delete;
  ~ClaimHolder() {
    if (child_ == 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  bool has_ended() {
    if (::waitpid(child_, nullptr, WNOHANG) != child_) return false;
    child_ = 0;
    return true;
  }
  int exit_code() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = 0;
    return WEXITSTATUS(status);
  }

 private:
  pid_t child_ = 0;
};

// The next words on the connection; "" once it is closed.
std::string heard(int fd) {
  char text[64];
  const ssize_t got = ::recv(fd, text, sizeof(text), 0);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

void say(int fd, std::string_view text) { ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }

Time time_to_take_over(const std::string& uuid, Time limit) {
  const Time begun = steady_now();
  take_over({uuid}, limit);
  return steady_now() - begun;
}

class TakeOver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  }
};

TEST_F(TakeOver, OneThatAgreesIsWaitedForUntilItHasEnded) {
  ClaimHolder holder(gpu_of_test(), kAnother, [](int fd) {
    if (heard(fd) != kTakeOver) return;
    // In two parts, as a stream may bring it.
    say(fd, "socket /here\nhands ");
    ::usleep(50'000);
    say(fd, "over\n");
    ::usleep(300'000);
  });
  EXPECT_LT(time_to_take_over(gpu_of_test(), kNever), kNever / 2);
  EXPECT_TRUE(holder.has_ended());
}

TEST_F(TakeOver, OneThatHangsUpWithoutAWordIsNotWaitedFor) {
  ClaimHolder holder(gpu_of_test(), kAnother, [](int fd) {
    heard(fd);
    ::close(fd);
    for (;;) ::pause();
  });
  EXPECT_LT(time_to_take_over(gpu_of_test(), kNever), kNever / 2);
  EXPECT_FALSE(holder.has_ended());
}

TEST_F(TakeOver, OneThatAgreesAndHangsUpIsWaitedForAllTheSame) {
  ClaimHolder holder(gpu_of_test(), kAnother, [](int fd) {
    heard(fd);
    say(fd, kHandsOver);
    ::close(fd);
    for (;;) ::pause();
  });
  constexpr Time kLimit = std::chrono::milliseconds(500);
  EXPECT_GE(time_to_take_over(gpu_of_test(), kLimit), kLimit - kClockTick);
}

TEST_F(TakeOver, OneThatIsSilentCostsTheLimit) {
  ClaimHolder holder(gpu_of_test(), kAnother, [](int) {
    for (;;) ::pause();
  });
  constexpr Time kLimit = std::chrono::milliseconds(500);
  EXPECT_GE(time_to_take_over(gpu_of_test(), kLimit), kLimit - kClockTick);
}

TEST_F(TakeOver, OneThatTalksWithoutEndIsNotHeardToTheEnd) {
  ClaimHolder holder(gpu_of_test(), kAnother, [](int fd) {
    const std::string much(4096, 'x');
    while (::send(fd, much.data(), much.size(), MSG_NOSIGNAL) > 0) continue;
    for (;;) ::pause();
  });
  EXPECT_LT(time_to_take_over(gpu_of_test(), kNever), kNever / 2);
}

TEST_F(TakeOver, AMonitorOfTheSameUserIsNotAsked) {
  ClaimHolder holder(gpu_of_test(), 0, [](int fd) { ::_exit(heard(fd).empty() ? 0 : 1); });
  EXPECT_LT(time_to_take_over(gpu_of_test(), kNever), kNever / 2);
  EXPECT_EQ(holder.exit_code(), 0);
}

TEST_F(TakeOver, AGpuThatNobodyClaimsCostsNoTime) {
  EXPECT_LT(time_to_take_over(gpu_of_test(), kNever), kNever / 2);
}

TEST(TakeOverWord, IsTheWholeOneAndNothingElse) {
  for (const std::string said :
       {"take over\n", "", "take over", "take over\nx", "TAKE OVER\n", "hands over\n"}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const Fd asks(ends[0]), hears(ends[1]);
    say(asks.get(), said);
    EXPECT_EQ(wants_gpus(hears.get()), said == kTakeOver) << said;
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
