// The digest's arithmetic, against one that is slow and plain; and who is answered what.
#include "shim/swap/transfer/digest.h"

#include <random>
#include <utility>
#include <vector>

#include "shim/swap/memory/range_table.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

namespace digest = swap::digest;
using digest::kPrime;
using Words = std::vector<std::uint32_t>;

// Word by word, by the division that the arithmetic avoids.
std::uint64_t slow(const Words& words, std::uint64_t r) {
  digest::Wide sum = 0;
  for (const std::uint32_t word : words) sum = (sum * r + word) % kPrime;
  return static_cast<std::uint64_t>(sum);
}

std::uint64_t quick(const Words& words, std::uint64_t r) {
  return digest::of_words(words.data(), words.size(), r);
}

Words some(std::size_t count, std::uint64_t seed = 1) {
  std::mt19937 next(static_cast<std::uint32_t>(seed));
  Words words(count);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(next());
  return words;
}

// Points at which carries are likely, and any.
const std::vector<std::uint64_t> kPoints = {
    0, 1, 2, kPrime - 1, kPrime - 2, 0x1234567890abcdefull, (1ull << 60) + 12345};

TEST(Digest, IsTheSlowOne) {
  for (const std::uint64_t r : kPoints) {
    for (const std::uint32_t word : {0u, 1u, 0xFFFFFFFFu}) {
      const Words words(4096, word);
      EXPECT_EQ(quick(words, r), slow(words, r)) << r << " of " << word;
    }
    const Words words = some(digest::kPieceWords);
    EXPECT_EQ(quick(words, r), slow(words, r)) << r;
  }
}

TEST(Digest, FoldingKeepsTheLargestInBounds) {
  const digest::Wide largest = (static_cast<digest::Wide>(1) << 124) - 1;
  EXPECT_LT(digest::fold(largest), 2 * kPrime);
  EXPECT_EQ(digest::fold(largest) % kPrime, static_cast<std::uint64_t>(largest % kPrime));
  EXPECT_EQ(digest::canonical(kPrime), 0u);
  // The kernel's largest sum before it folds: a sum that was folded, and four of the largest words.
  const digest::Wide most = static_cast<digest::Wide>(2 * kPrime) * (2 * kPrime) +
                            3 * static_cast<digest::Wide>(2 * kPrime) * 0xFFFFFFFFu + 0xFFFFFFFFu;
  EXPECT_LT(most, static_cast<digest::Wide>(1) << 125);
}

TEST(Digest, PiecesJoinToTheWhole) {
  const Words words = some(3 * 64);
  for (const std::uint64_t r : kPoints) {
    const std::uint64_t shift = digest::power(r, 64);
    std::uint64_t joined = 0;
    for (std::size_t i = 0; i < words.size(); i += 64) {
      joined = digest::join(joined, shift, digest::of_words(words.data() + i, 64, r));
    }
    EXPECT_EQ(joined, slow(words, r)) << r;
  }
}

TEST(Digest, PowersAreProducts) {
  for (const std::uint64_t r : kPoints) {
    std::uint64_t product = 1;
    for (unsigned exponent = 0; exponent < 70; ++exponent) {
      EXPECT_EQ(digest::canonical(digest::power(r, exponent)), product);
      product = static_cast<std::uint64_t>(static_cast<digest::Wide>(product) * r % kPrime);
    }
  }
}

TEST(Digest, EachBitIsSeen) {
  const std::uint64_t r = kPoints[5];
  Words words = some(256);
  const std::uint64_t before = quick(words, r);
  for (std::uint32_t& word : words) {
    for (unsigned bit = 0; bit < 32; ++bit) {
      word ^= 1u << bit;
      EXPECT_NE(quick(words, r), before);
      word ^= 1u << bit;
    }
  }
  EXPECT_EQ(quick(words, r), before);
}

TEST(Digest, ExchangedWordsAreSeen) {
  const std::uint64_t r = kPoints[5];
  Words words = some(1024);
  const std::uint64_t before = quick(words, r);
  for (const std::size_t distance : {1u, 2u, 4u, 63u, 512u}) {
    for (std::size_t i = 0; i + distance < words.size(); i += 37) {
      std::swap(words[i], words[i + distance]);
      EXPECT_NE(quick(words, r), before) << i << " and " << distance << " behind";
      std::swap(words[i], words[i + distance]);
    }
  }
}

TEST(Digest, OnlyZerosAreZero) {
  const std::uint64_t r = kPoints[5];
  Words words(1024);
  EXPECT_EQ(quick(words, r), 0u);
  for (std::uint32_t& word : words) {
    word = 1;
    EXPECT_NE(quick(words, r), 0u);
    word = 0;
  }
}

// A driver whose kernels answer with the number of the piece.
class Answers : public testing::EngineTest {
 protected:
  Answers() {
    swap::clear_digests();
    g_driver.cuLibraryLoadData = [](CUlibrary* out, const void*, CUjit_option*, void**, unsigned,
                                    CUlibraryOption*, void**, unsigned) {
      ++loads_;
      *out = reinterpret_cast<CUlibrary>(0x70);
      return load_;
    };
    g_driver.cuLibraryGetKernel = [](CUkernel* out, CUlibrary, const char*) {
      *out = reinterpret_cast<CUkernel>(0x80);
      return CUDA_SUCCESS;
    };
    g_driver.cuLaunchKernel = [](CUfunction, unsigned blocks, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, unsigned, CUstream, void** arguments, void**) {
      const auto& batch = *static_cast<const digest::Batch*>(arguments[0]);
      auto* out = reinterpret_cast<digest::Digest*>(*static_cast<CUdeviceptr*>(arguments[3]));
      for (unsigned i = 0; i < blocks; ++i) out[i] = {batch.address[i] / digest::kPieceBytes, 7};
      if (++launches_ == refused_) return CUDA_ERROR_LAUNCH_FAILED;
      return CUDA_SUCCESS;
    };
    g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
    g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
    g_driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* out, void* at, unsigned) {
      *out = reinterpret_cast<CUdeviceptr>(at);
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamCreate = [](CUstream* out, unsigned) {
      *out = reinterpret_cast<CUstream>(0x50);
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    g_driver.cuStreamSynchronize = [](CUstream) {
      ++synchronised_;
      return CUDA_SUCCESS;
    };
    g_driver.cuEventCreate = [](CUevent* out, unsigned) {
      *out = reinterpret_cast<CUevent>(0x60);
      return CUDA_SUCCESS;
    };
    g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    g_driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    g_driver.cuEventSynchronize = [](CUevent) { return CUDA_SUCCESS; };
    loads_ = launches_ = refused_ = synchronised_ = 0;
    load_ = CUDA_SUCCESS;
  }
  int loads_of(int moves) {
    for (int i = 0; i < moves; ++i) swap::Digests digests(0, digest::kPieceBytes);
    return loads_;
  }

  static inline CUresult load_ = CUDA_SUCCESS;
  static inline int loads_ = 0;
  static inline int launches_ = 0;
  static inline int refused_ = 0;
  static inline int synchronised_ = 0;
};

TEST_F(Answers, ComeInTheOrderOfAskingOverAllBatches) {
  constexpr std::uint64_t kPieces = 2 * digest::kBatch + 3;
  swap::Digests digests(0, kPieces * digest::kPieceBytes);
  for (std::uint64_t i = kPieces; i-- > 0;) {
    digests.ask((i + 1) * digest::kPieceBytes, digest::kPieceBytes);
  }
  digests.launch();
  EXPECT_EQ(launches_, 3);
  for (std::uint64_t i = kPieces; i-- > 0;) {
    swap::Digest one;
    ASSERT_TRUE(digests.answer(digest::kPieceBytes, one));
    EXPECT_EQ(one.a, i + 1);
    EXPECT_EQ(one.b, 7u);
  }
}

TEST_F(Answers, TheOrderOfPiecesCounts) {
  const auto ask = [](CUdeviceptr first, CUdeviceptr second) {
    swap::Digests digests(0, 2 * digest::kPieceBytes);
    digests.ask(first * digest::kPieceBytes, digest::kPieceBytes);
    digests.ask(second * digest::kPieceBytes, digest::kPieceBytes);
    digests.launch();
    swap::Digest both;
    EXPECT_TRUE(digests.answer(2 * digest::kPieceBytes, both));
    return both.a;
  };
  EXPECT_NE(ask(1, 2), ask(2, 1));
  EXPECT_EQ(ask(1, 2), ask(1, 2)) << "the points stay";
}

TEST_F(Answers, AreNoneAfterAFailureAndNothingRunsAnyMore) {
  refused_ = 2;
  {
    swap::Digests digests(0, 2 * digest::kBatch * digest::kPieceBytes);
    for (std::uint64_t i = 0; i < 2 * digest::kBatch; ++i) {
      digests.ask(i * digest::kPieceBytes, digest::kPieceBytes);
    }
    digests.launch();
    EXPECT_EQ(synchronised_, 1);
    swap::Digest one;
    EXPECT_FALSE(digests.answer(digest::kPieceBytes, one));
  }
  EXPECT_EQ(synchronised_, 2);
}

// The driver compiles for milliseconds before it refuses.
TEST_F(Answers, AKernelThatTheDriverDoesNotTakeIsLoadedOnce) {
  load_ = CUDA_ERROR_INVALID_PTX;
  EXPECT_EQ(loads_of(3), 1);
}

TEST_F(Answers, AKernelThatFoundNoRoomIsLoadedAgain) {
  load_ = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(loads_of(3), 3);
}

TEST_F(Answers, AreNoneOfWhatIsNotWholePieces) {
  swap::Digests digests(0, digest::kPieceBytes);
  digests.ask(0, digest::kPieceBytes / 2);
  digests.launch();
  swap::Digest one;
  EXPECT_FALSE(digests.answer(digest::kPieceBytes / 2, one));
  EXPECT_EQ(launches_, 0);
}

}  // namespace
}  // namespace switchyard::shim
