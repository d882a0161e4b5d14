// The digest's kernel as the driver compiles it from our text, against the arithmetic of the CPU.
// It runs on the machine's GPU, simulated or real.
#include <random>

#include "digest_ptx.h"
#include "shim/swap/memory/digest_math.h"
#include "tests/conformance/driver.h"

namespace conformance {
namespace {

namespace digest = switchyard::shim::swap::digest;

class DigestKernel : public Gpu {
 protected:
  static constexpr unsigned kPieces = 4;
  static constexpr std::size_t kWords = digest::kPieceWords;

  void SetUp() override {
    Gpu::SetUp();
    if (!context_ || HasFatalFailure() || IsSkipped()) return;
    ASSERT_CU(
        CU(cuLibraryLoadData)(&library_, kDigestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    ASSERT_CU(CU(cuLibraryGetKernel)(&kernel_, library_, "switchyard_digest"));
    // Anything, the largest words, one word at the end, and zeros.
    words_.assign(kPieces * kWords, 0);
    std::mt19937 next(7);
    for (std::size_t i = 0; i < kWords; ++i) words_[i] = static_cast<std::uint32_t>(next());
    for (std::size_t i = kWords; i < 2 * kWords; ++i) words_[i] = 0xFFFFFFFFu;
    words_[3 * kWords - 1] = 1;
    memory_ = alloc(4 * words_.size());
    ASSERT_CU(CU(cuMemcpyHtoD)(memory_, words_.data(), 4 * words_.size()));
    out_ = reinterpret_cast<digest::Digest*>(pinned(4 * kBlocks));
  }
  void TearDown() override {
    if (library_) {
      EXPECT_OK(CU(cuLibraryUnload)(library_));
    }
    Gpu::TearDown();
  }

  // Block i takes piece i modulo what there is.
  void run(std::uint64_t r0, std::uint64_t r1) {
    digest::Batch batch{};
    for (unsigned i = 0; i < kBlocks; ++i) {
      batch.address[i] = memory_ + i % kPieces * digest::kPieceBytes;
    }
    CUdeviceptr out = 0;
    ASSERT_CU(CU(cuMemHostGetDevicePointer)(&out, out_, 0));
    void* arguments[] = {&batch, &r0, &r1, &out};
    ASSERT_CU(CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(kernel_), kBlocks, 1, 1, 512, 1, 1, 0,
                                 stream(), arguments, nullptr));
    ASSERT_CU(CU(cuCtxSynchronize)());
  }
  std::uint64_t expected(unsigned piece, std::uint64_t r) const {
    return digest::of_words(words_.data() + piece * kWords, kWords, r);
  }

  static constexpr unsigned kBlocks = 41;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUdeviceptr memory_ = 0;
  digest::Digest* out_ = nullptr;
  std::vector<std::uint32_t> words_;
};

TEST_F(DigestKernel, ComputesAsTheCpuDoes) {
  const std::uint64_t points[] = {0x1234567890abcdefull, digest::kPrime - 1, 0, 1, 2,
                                  0x0fedcba987654321ull};
  for (std::size_t i = 0; i + 1 < std::size(points); ++i) {
    ASSERT_NO_FATAL_FAILURE(run(points[i], points[i + 1]));
    for (unsigned block = 0; block < kBlocks; ++block) {
      EXPECT_EQ(out_[block].a, expected(block % kPieces, points[i])) << "block " << block;
      EXPECT_EQ(out_[block].b, expected(block % kPieces, points[i + 1])) << "block " << block;
    }
  }
}

TEST_F(DigestKernel, SeesOneBit) {
  ASSERT_NO_FATAL_FAILURE(run(0x1234567890abcdefull, 0x0fedcba987654321ull));
  const digest::Digest before = out_[0];
  ASSERT_CU(CU(cuMemsetD32)(memory_ + 4 * 123457, words_[123457] ^ 0x10000u, 1));
  ASSERT_NO_FATAL_FAILURE(run(0x1234567890abcdefull, 0x0fedcba987654321ull));
  EXPECT_NE(out_[0].a, before.a);
  EXPECT_NE(out_[0].b, before.b);
}

}  // namespace
}  // namespace conformance
