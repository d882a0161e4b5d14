// Frames from a hostile peer.
#include "monitor/core/frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace switchyard::monitor {
namespace {

std::string header(std::uint32_t magic, std::uint32_t kind, std::uint32_t length) {
  const wire::FrameHeader head{magic, kind, length, 5};
  return {reinterpret_cast<const char*>(&head), sizeof(head)};
}

wire::Hello good_hello() {
  wire::Hello hello{};
  hello.layout_version = abi::kLayoutVersion;
  hello.lane_count = 1;
  return hello;
}

template <typename Plain>
std::string bytes_of(const Plain& plain) {
  return {reinterpret_cast<const char*>(&plain), sizeof(plain)};
}

TEST(Frames, AFrameComesOutAsItWentIn) {
  FrameReader reader;
  ASSERT_TRUE(reader.feed(make_frame(wire::kJson, 42, "{}")));
  const auto frame = reader.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, wire::kJson);
  EXPECT_EQ(frame->id, 42u);
  EXPECT_EQ(frame->payload, "{}");
  EXPECT_FALSE(reader.in_the_middle());
}

TEST(Frames, ByteByByte) {
  FrameReader reader;
  const std::string bytes = make_frame(wire::kJson, 1, "hello");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(reader.next());
    ASSERT_TRUE(reader.feed(std::span(&bytes[i], 1)));
  }
  EXPECT_EQ(reader.next()->payload, "hello");
}

TEST(Frames, SeveralAtOnceKeepTheirOrder) {
  FrameReader reader;
  ASSERT_TRUE(reader.feed(make_frame(16, 1, "a") + make_frame(16, 2, "") + make_frame(16, 3, "c")));
  EXPECT_EQ(reader.next()->id, 1u);
  EXPECT_EQ(reader.next()->id, 2u);
  EXPECT_EQ(reader.next()->id, 3u);
  EXPECT_FALSE(reader.next());
}

TEST(Frames, ABadMagicBreaksTheStream) {
  FrameReader reader;
  EXPECT_FALSE(reader.feed(header(0x12345678, 1, 0)));
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.feed(make_frame(16, 1, "{}"))) << "once broken, always broken";
  EXPECT_FALSE(reader.error().empty());
}

TEST(Frames, ABadMagicAfterAGoodFrameBreaksTheStream) {
  FrameReader reader;
  ASSERT_TRUE(reader.feed(make_frame(16, 1, "{}") + header(7, 1, 0)));
  EXPECT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.error().empty());
}

TEST(Frames, ALengthOverTheLimitBreaksTheStreamBeforeAnythingIsKept) {
  for (const std::uint32_t length : {kMostRequestBytes + 1, wire::kMaxFrame, 0xffffffffu}) {
    FrameReader reader;
    EXPECT_FALSE(reader.feed(header(wire::kMagic, wire::kJson, length)));
  }
}

TEST(Frames, HelloIsRead) {
  std::string why;
  EXPECT_TRUE(read_hello(bytes_of(good_hello()), why)) << why;
}

TEST(Frames, HelloOfAnotherLayoutIsNamedAsThat) {
  wire::Hello hello = good_hello();
  hello.layout_version = 99;
  std::string why;
  EXPECT_FALSE(read_hello(bytes_of(hello).substr(0, 20), why)) << "whatever its size";
  EXPECT_NE(why.find("layout 99"), std::string::npos);
}

TEST(Frames, HelloThatIsTooShortIsRefused) {
  std::string why;
  EXPECT_FALSE(read_hello(bytes_of(good_hello()).substr(1), why));
  EXPECT_FALSE(read_hello("", why));
}

TEST(Frames, HelloWithTooManyGpusIsRefused) {
  wire::Hello hello = good_hello();
  hello.lane_count = abi::kMaxGpus + 1;
  std::string why;
  EXPECT_FALSE(read_hello(bytes_of(hello), why));
  hello.lane_count = 0xffffffff;
  EXPECT_FALSE(read_hello(bytes_of(hello), why));
}

TEST(Frames, HelloWithATextThatNeverEndsIsRefused) {
  std::string why;
  wire::Hello hello = good_hello();
  std::memset(hello.process, 'x', sizeof(hello.process));
  EXPECT_FALSE(read_hello(bytes_of(hello), why));
#define SWITCHYARD_ENDLESS(field, env, capacity, fallback, ...)  \
  hello = good_hello();                                          \
  std::snprintf(hello.card, sizeof(hello.card), "%s=%s", #field, \
                std::string(capacity, 'x').c_str());             \
  EXPECT_FALSE(read_hello(bytes_of(hello), why)) << #field;      \
  std::memset(hello.card, 0, sizeof(hello.card));                \
  std::snprintf(hello.card, sizeof(hello.card), "%s=%s", #field, \
                std::string((capacity)-1, 'x').c_str());         \
  EXPECT_TRUE(read_hello(bytes_of(hello), why)) << #field;
  SWITCHYARD_KNOBS(SWITCHYARD_ENDLESS)
#undef SWITCHYARD_ENDLESS
  std::memset(hello.card, 'x', sizeof(hello.card));
  EXPECT_FALSE(read_hello(bytes_of(hello), why));
}

TEST(Frames, APayloadGrowsAtItsEndAndIsNeverShorterThanTheFirst) {
  const wire::Charge charge{1, 0, 2};
  const wire::Share share{{{1, 2}}, 3, 4};
  const std::string later(40, 'x');
  std::string why;
  ASSERT_TRUE(read_charge(bytes_of(charge) + later));
  EXPECT_EQ(read_charge(bytes_of(charge) + later)->bytes, 2u);
  ASSERT_TRUE(read_share(bytes_of(share) + later));
  EXPECT_EQ(read_share(bytes_of(share) + later)->total, 4u);
  ASSERT_TRUE(read_hello(bytes_of(good_hello()) + later, why)) << why;
  EXPECT_EQ(read_hello(bytes_of(good_hello()) + later, why)->lane_count, 1u);
  EXPECT_FALSE(read_charge(bytes_of(charge).substr(1)));
  EXPECT_FALSE(read_share(bytes_of(share).substr(1)));
  EXPECT_FALSE(read_hello(bytes_of(good_hello()).substr(1), why));
}

// That of version 0.1.0 begins in the same way.
TEST(Frames, AnOldLibraryIsRefusedInOneLineWhateverElseItSays) {
  std::string why;
  std::string old(1000, '\1');
  const std::uint32_t layout = 10;
  old.replace(0, sizeof(layout), reinterpret_cast<const char*>(&layout), sizeof(layout));
  EXPECT_FALSE(read_hello(old, why));
  EXPECT_EQ(why.rfind("old library", 0), 0u) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_EQ(other_layout(old), 10u);
}

class FramesFuzz : public testing::TestWithParam<std::uint64_t> {};

// Whatever arrives, in whatever pieces: no crash, nothing kept beyond a frame, frames within
// bounds.
TEST_P(FramesFuzz, RandomBytesInRandomPieces) {
  std::mt19937_64 random(GetParam());
  for (int stream = 0; stream < 50; ++stream) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
      std::string piece = make_frame(random() % 20, i, std::string(random() % 300, 'x'));
      const auto kind = random() % 5;
      if (kind == 0) piece[random() % piece.size()] ^= static_cast<char>(1 << (random() % 8));
      if (kind == 1) piece.resize(random() % piece.size());
      if (kind == 2) {
        for (char& c : piece) c = static_cast<char>(random());
      }
      bytes += piece;
    }
    FrameReader reader;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t piece = std::min<std::size_t>(1 + random() % 100, bytes.size() - at);
      if (!reader.feed(std::span(&bytes[at], piece))) break;
      at += piece;
      while (const auto frame = reader.next()) {
        ASSERT_LE(frame->payload.size(), kMostRequestBytes);
        std::string why;
        read_hello(frame->payload, why);
        read_charge(frame->payload);
      }
    }
  }
}

TEST_P(FramesFuzz, RandomHellosAreReadOrRefused) {
  std::mt19937_64 random(GetParam());
  for (int i = 0; i < 300; ++i) {
    wire::Hello hello = good_hello();
    auto* raw = reinterpret_cast<unsigned char*>(&hello);
    for (int flips = 0; flips < 20; ++flips) {
      raw[4 + random() % (sizeof(hello) - 4)] = static_cast<unsigned char>(random());
    }
    std::string why;
    const auto read = read_hello(bytes_of(hello), why);
    if (read) {
      ASSERT_LE(read->lane_count, abi::kMaxGpus);
    } else {
      ASSERT_FALSE(why.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FramesFuzz, testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace switchyard::monitor
