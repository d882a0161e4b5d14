// What the monitor of a released version answers, as this library hears it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim/client/frames.h"
#include "tests/support/recorded.h"

namespace switchyard::shim {
namespace {

class Replay : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    for (const int end : ends_) ::close(end);
  }
  // The frame with `payload`, and whatever follows it, as a struct of this version.
  template <typename Plain>
  Plain heard(wire::Kind kind, const std::string& payload) {
    EXPECT_TRUE(send_frame(ends_[0], kind, 9, payload.data(), payload.size()));
    EXPECT_EQ(::send(ends_[0], "next", 4, 0), 4);
    wire::FrameHeader header{};
    Descriptors none;
    Plain out{};
    EXPECT_TRUE(receive_header(ends_[1], header, none));
    EXPECT_TRUE(receive_payload(ends_[1], header, &out, sizeof(out)));
    char next[4];
    EXPECT_TRUE(receive_all(ends_[1], next, sizeof(next)));
    EXPECT_EQ(std::string(next, 4), "next") << "the stream is in step";
    return out;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(Replay, AnswersAreWhatTheyWereAndMayBeLonger) {
  for (const std::string& more : {std::string(), std::string(100, 'x')}) {
    const auto file = [&](const char* name) { return recorded("0.2.0", name) + more; };
    const auto welcome = heard<wire::Welcome>(wire::kWelcome, file("welcome"));
    EXPECT_EQ(welcome.layout_version, abi::kLayoutVersion);
    EXPECT_EQ(welcome.page_bytes, 122'880u);
    EXPECT_EQ(welcome.monitor_pid, 4713u);
    EXPECT_EQ(welcome.features, wire::kSharesMemory);
    const auto charged = heard<wire::Charged>(wire::kCharged, file("charged"));
    EXPECT_EQ(charged.verdict, wire::kWait);
    EXPECT_EQ(charged.lacks, wire::kParkedMakesWay);
    EXPECT_EQ(charged.available_bytes, 4096u);
    const auto shared = heard<wire::Shared>(wire::kShared, file("shared"));
    EXPECT_EQ(shared.verdict, wire::kTaken);
    EXPECT_EQ(shared.total, 5u);
    EXPECT_EQ(shared.count, 4u);
  }
}

TEST_F(Replay, AnAnswerThatIsTooShortOrFarTooLongIsNone) {
  for (const std::uint32_t bytes : {15u, 5000u}) {
    const wire::FrameHeader header{wire::kMagic, wire::kWelcome, bytes, 9};
    wire::Welcome out{};
    EXPECT_FALSE(receive_payload(ends_[1], header, &out, sizeof(out))) << bytes;
  }
}

}  // namespace
}  // namespace switchyard::shim
