// Which collectives get their norms taken, when the kernels are put, and what the page says then.
#include "shim/nccl/norms.h"

#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "shim/nccl/square_norm.h"
#include "shim/reset.h"
#include "tests/shim/nccl/nccl_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
namespace square_norm = nccl::square_norm;
namespace norms = nccl::norms;

constexpr std::size_t kCount = 10'000;

// The work that was put into streams, in its order.
std::vector<std::string> g_log;

// A kernel of ours that the GPU has not run yet.
struct Put {
  const void* from;
  std::uint64_t count;
  square_norm::Type type;
  double* out;
  unsigned blocks;
};
std::vector<Put> g_put;
int g_loads = 0;
bool g_gpu_waits = false;

void run(const Put& put) {
  for (unsigned i = 0; i < put.blocks; ++i) {
    put.out[i] = i == 0 ? square_norm::of(put.from, put.count, put.type) : 0;
  }
}
void run_all() {
  for (const Put& put : g_put) run(put);
  g_put.clear();
}

class Norms : public NcclTest {
 protected:
  Norms() {
    ::setenv("SWITCHYARD_GRADIENT_NOISE", "yes", 1);
    g_log.clear();
    g_put.clear();
    g_loads = 0;
    g_gpu_waits = false;
    g_driver.cuLibraryLoadData = [](CUlibrary* out, const void*, CUjit_option*, void**, unsigned,
                                    CUlibraryOption*, void**, unsigned) {
      ++g_loads;
      *out = reinterpret_cast<CUlibrary>(1);
      return CUDA_SUCCESS;
    };
    g_driver.cuLibraryGetKernel = [](CUkernel* out, CUlibrary, const char*) {
      *out = reinterpret_cast<CUkernel>(2);
      return CUDA_SUCCESS;
    };
    g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
    g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
    g_driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* out, void* host, unsigned) {
      *out = reinterpret_cast<CUdeviceptr>(host);
      return CUDA_SUCCESS;
    };
    g_driver.cuLaunchKernel = [](CUfunction, unsigned blocks, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, unsigned, CUstream, void** arguments, void**) {
      g_log.emplace_back("norm");
      Put put{};
      put.from = *static_cast<void**>(arguments[0]);
      put.count = *static_cast<std::uint64_t*>(arguments[1]);
      put.type = static_cast<square_norm::Type>(*static_cast<std::uint32_t*>(arguments[2]));
      put.out = reinterpret_cast<double*>(*static_cast<CUdeviceptr*>(arguments[3]));
      put.blocks = blocks;
      g_put.push_back(put);
      if (!g_gpu_waits) run_all();
      return CUDA_SUCCESS;
    };
    sent_.assign(kCount, 2);
    received_.assign(kCount, 3);
  }
  ~Norms() override { ::unsetenv("SWITCHYARD_GRADIENT_NOISE"); }

  static NcclCall nccl(ncclResult_t result = kNcclSuccess) {
    NcclCall call;
    call.call = [result] {
      g_log.emplace_back("nccl");
      return result;
    };
    return call;
  }
  ncclResult_t sum(std::size_t count = kCount, ncclRedOp_t op = kNcclSum,
                   ncclDataType_t type = kNcclFloat32, ncclResult_t result = kNcclSuccess,
                   CUstream stream = nullptr) {
    return nccl::rules::operation<Collective::kAllReduce>(
        nccl(result), static_cast<const void*>(sent_.data()), static_cast<void*>(received_.data()),
        count, type, op, first_, stream);
  }
  static std::uint32_t told() { return page().process.normed.load(); }
  static const abi::Norm& last() { return page().norms[(told() - 1) % abi::kNorms]; }
  static double number(const abi::Word64& word) {
    const std::uint64_t bits = word.load();
    double out = 0;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }
  static bool says(Unmeasured why) { return (page().process.unmeasured.load() & bit_of(why)) != 0; }
  static void order(std::uint64_t elements, std::uint32_t stride) {
    abi::NormOrder& order = page().norm_orders[nccl::communicators::find(comm_at(0x1000))];
    order.elements.store(elements);
    order.stride.store(stride);
  }
  using Log = std::vector<std::string>;

  std::vector<float> sent_, received_;
};

TEST_F(Norms, StandBeforeAndBehindTheCollective) {
  make(first_, 2);
  EXPECT_EQ(g_loads, 1) << "before any collective";
  EXPECT_EQ(sum(), kNcclSuccess);
  EXPECT_EQ(g_log, (Log{"norm", "nccl", "norm"}));
  EXPECT_TRUE(norms::collect());
  ASSERT_EQ(told(), 1u);
  EXPECT_EQ(last().number.load(), 1u);
  EXPECT_EQ(last().launched.load(), 1u);
  EXPECT_EQ(last().elements.load(), kCount);
  EXPECT_EQ(number(last().before), 4.0 * kCount);
  EXPECT_EQ(number(last().after), 9.0 * kCount);
  EXPECT_EQ(last().what.load(),
            static_cast<unsigned>(nccl::communicators::find(first_)) | abi::kNormSummed);
  EXPECT_FALSE(norms::collect());
}

TEST_F(Norms, AreNotTakenUnlessAskedFor) {
  ::unsetenv("SWITCHYARD_GRADIENT_NOISE");
  make(first_, 2);
  sum();
  EXPECT_EQ(g_log, Log{"nccl"});
  EXPECT_EQ(g_loads, 0);
}

TEST_F(Norms, NobodyWaitsForTheGpu) {
  make(first_, 2);
  g_gpu_waits = true;
  sum();
  EXPECT_FALSE(norms::collect());
  run(g_put[0]);
  EXPECT_FALSE(norms::collect()) << "one of two";
  run_all();
  EXPECT_TRUE(norms::collect());
  EXPECT_EQ(told(), 1u);
}

TEST_F(Norms, OfAGroupStandAroundItsEnd) {
  make(first_, 2);
  start();
  sum();
  sum();
  EXPECT_EQ(g_log, (Log{"nccl", "nccl"}));
  NcclCall end = nccl();
  nccl::rules::group_end(end);
  EXPECT_EQ(g_log, (Log{"nccl", "nccl", "norm", "norm", "nccl", "norm", "norm"}));
  norms::collect();
  ASSERT_EQ(told(), 2u);
  EXPECT_EQ(page().norms[0].launched.load(), 1u);
  EXPECT_EQ(page().norms[1].launched.load(), 2u);
  start();
  nccl::rules::group_end(nccl());
  EXPECT_EQ(g_log.size(), 8u) << "nothing is left of the group before";
}

TEST_F(Norms, OfAGroupThatHoldsTooManyNone) {
  make(first_, 2);
  start();
  for (unsigned i = 0; i <= nccl::kMostSums; ++i) sum();
  finish();
  norms::collect();
  EXPECT_EQ(told(), 0u);
  EXPECT_TRUE(says(Unmeasured::kGroup));
}

TEST_F(Norms, WhatNcclRefusesIsNotTold) {
  make(first_, 2);
  sum(kCount, kNcclSum, kNcclFloat32, kNcclInvalidArgument);
  EXPECT_EQ(g_log, (Log{"norm", "nccl"}));
  EXPECT_TRUE(norms::collect());
  EXPECT_EQ(told(), 0u);
  sum();
  norms::collect();
  EXPECT_EQ(told(), 1u);
}

TEST_F(Norms, WhatIsNotInTheStreamYetIsNotTold) {
  make(first_, 2);
  sum(kCount, kNcclSum, kNcclFloat32, kNcclInProgress);
  norms::collect();
  EXPECT_EQ(told(), 0u);
  EXPECT_TRUE(says(Unmeasured::kAsynchronous));
}

TEST_F(Norms, OfMetricsAndOfOneRankNone) {
  make(first_, 2);
  sum(kFewestElements - 1);
  sum(kCount, kNcclSum, kNcclInt32);
  sum(kCount, 2);  // the greatest
  make(second_, 1);
  nccl::rules::operation<Collective::kAllReduce>(nccl(), static_cast<const void*>(sent_.data()),
                                                 static_cast<void*>(received_.data()), kCount,
                                                 kNcclFloat32, kNcclSum, second_, CUstream{});
  EXPECT_EQ(g_log, (Log{"nccl", "nccl", "nccl", "nccl"}));
  EXPECT_EQ(page().process.unmeasured.load(), 0u);
}

TEST_F(Norms, WhatIsNotKnownIsSaid) {
  make(first_, 2);
  sum(kCount, 5);  // an operator of the program's own
  EXPECT_TRUE(says(Unmeasured::kOperator));
  sum(kCount / 2, kNcclSum, kNcclFloat64);
  EXPECT_FALSE(says(Unmeasured::kType)) << "too small";
  sum(kCount, kNcclSum, kNcclFloat64);
  EXPECT_TRUE(says(Unmeasured::kType));
  EXPECT_EQ(g_log, (Log{"nccl", "nccl", "nccl"}));
}

TEST_F(Norms, AnAverageIsToldAsOne) {
  make(first_, 2);
  sum(kCount, kNcclAvg);
  norms::collect();
  EXPECT_EQ(last().what.load() & abi::kNormSummed, 0u);
}

TEST_F(Norms, OfAReduceScatterAllIsSentAndAPartReceived) {
  make(first_, 2);
  nccl::rules::operation<Collective::kReduceScatter>(
      nccl(), static_cast<const void*>(sent_.data()), static_cast<void*>(received_.data()),
      kCount / 2, kNcclFloat32, kNcclSum, first_, CUstream{});
  norms::collect();
  EXPECT_EQ(last().elements.load(), kCount);
  EXPECT_EQ(number(last().before), 4.0 * kCount);
  EXPECT_EQ(number(last().after), 9.0 * kCount / 2);
  EXPECT_NE(last().what.load() & abi::kNormScattered, 0u);
}

TEST_F(Norms, WhereTheDriverTakesNoKernelNothingIsMeasured) {
  g_driver.cuLibraryLoadData = nullptr;
  make(first_, 2);
  sum();
  EXPECT_EQ(g_log, Log{"nccl"});
  EXPECT_TRUE(says(Unmeasured::kKernel));
  EXPECT_FALSE(says(Unmeasured::kContext));
}

TEST_F(Norms, WhereMemoryCannotBePinnedNothingIsMeasured) {
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  make(first_, 2);
  sum();
  EXPECT_EQ(g_log, Log{"nccl"});
  EXPECT_TRUE(says(Unmeasured::kKernel));
}

TEST_F(Norms, InAnotherContextNothingIsMeasured) {
  make(first_, 2);
  world_.context = context_number(0x2222);
  sum();
  EXPECT_EQ(g_log, Log{"nccl"});
  EXPECT_TRUE(says(Unmeasured::kContext));
}

TEST_F(Norms, ALaunchThatIsRefusedIsNotTold) {
  make(first_, 2);
  const auto launch = g_driver.cuLaunchKernel;
  g_driver.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned, CUstream, void**,
                               void**) { return CUDA_ERROR_LAUNCH_FAILED; };
  EXPECT_EQ(sum(), kNcclSuccess);
  EXPECT_TRUE(says(Unmeasured::kKernel));
  g_driver.cuLaunchKernel = launch;
  sum();
  norms::collect();
  EXPECT_EQ(told(), 1u) << "the entry came free";
}

TEST_F(Norms, WhenAllEntriesWaitTheNextIsNotMeasured) {
  make(first_, 2);
  g_gpu_waits = true;
  for (int i = 0; i < 300; ++i) sum();
  const std::size_t put = g_put.size() / 2;
  EXPECT_EQ(put, 256u);
  run_all();
  norms::collect();
  EXPECT_EQ(told(), put);
  sum();
  run_all();
  norms::collect();
  EXPECT_EQ(told(), put + 1);
  EXPECT_EQ(last().launched.load(), 301u);
}

TEST_F(Norms, WhenHalfOfTheEntriesAreTakenTheLauncherCollects) {
  make(first_, 2);
  for (int i = 0; i < 1000; ++i) sum();
  EXPECT_EQ(g_log.size(), 3000u) << "each was measured";
  EXPECT_GT(told(), 700u);
}

TEST_F(Norms, WithACadenceEachSoManyStepsAreMeasured) {
  ::setenv("SWITCHYARD_GRADIENT_NOISE", "3", 1);
  make(first_, 2);
  const auto step = [&] {
    g_log.clear();
    sum(kCount - 1);  // the marker
    sum(kCount);
    sum(8);
    return g_log.size() > 3;
  };
  EXPECT_TRUE(step()) << "until the monitor knows what a step is, all are";
  order(kCount - 1, 3);
  std::vector<bool> measured;
  measured.reserve(12);
  for (int i = 0; i < 12; ++i) measured.push_back(step());
  // The marker's numbers are 4, 7, 10, ...: divided by 3, each third is measured.
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(measured[i], (i + 1) % 3 == 0) << i;
  norms::collect();
  EXPECT_EQ(told(), 26u) << "all but the small one of each step, in their order";
  for (unsigned at = 0; at + 1 < told(); ++at) {
    EXPECT_LT(page().norms[at].launched.load(), page().norms[at + 1].launched.load());
  }
  EXPECT_FALSE(std::isnan(number(page().norms[0].before)));
  EXPECT_TRUE(std::isnan(number(page().norms[2].before)));
  EXPECT_TRUE(std::isnan(number(page().norms[2].after)));
  // The marker comes no more.
  g_log.clear();
  for (int i = 0; i < 30; ++i) sum(kCount);
  EXPECT_GT(g_log.size(), 30u);
}

TEST_F(Norms, UnderAnOrderThatHasStoodForLongOnlyWhatIsDueIsTold) {
  ::setenv("SWITCHYARD_GRADIENT_NOISE", "1000000", 1);
  make(first_, 2);
  order(kCount, 1);
  const auto grown = [this](int sums) {
    const std::uint32_t before = told();
    for (int i = 0; i < sums; ++i) sum();
    norms::collect();
    return told() - before;
  };
  EXPECT_EQ(grown(8192), 8192u);
  EXPECT_EQ(grown(100), 0u);
  order(kCount, 2);
  EXPECT_EQ(grown(100), 100u) << "it may be wrong";
}

TEST_F(Norms, AnotherCommunicatorInTheSlotIsMeasuredAnew) {
  ::setenv("SWITCHYARD_GRADIENT_NOISE", "1000", 1);
  make(first_, 2);
  order(kCount, 1);
  for (int i = 0; i < 3; ++i) sum();
  EXPECT_EQ(g_log, (Log{"nccl", "nccl", "nccl"}));
  nccl::rules::end(NcclCall{}, first_);
  make(first_, 2);
  g_log.clear();
  sum();
  EXPECT_EQ(g_log.size(), 3u) << "the order was for the one before";
}

TEST_F(Norms, AContextThatEndsTakesItsEntriesWithIt) {
  make(first_, 2);
  g_gpu_waits = true;
  sum();
  norms::context_gone(0, 0);
  g_put.clear();
  EXPECT_FALSE(norms::collect());
  g_gpu_waits = false;
  sum();
  EXPECT_TRUE(says(Unmeasured::kContext));
  make(second_, 2);
  sum();
  EXPECT_TRUE(norms::collect());
  EXPECT_EQ(told(), 1u);
}

TEST_F(Norms, AFreshPageIsToldWhy) {
  make(first_, 2);
  sum(kCount, 5);
  static abi::Page fresh;
  norms::carry_over(fresh);
  EXPECT_EQ(fresh.process.unmeasured.load(), bit_of(Unmeasured::kOperator));
}

TEST_F(Norms, AForkedChildMeasuresNothingOfItsParents) {
  make(first_, 2);
  g_gpu_waits = true;
  sum();
  run_resets();
  EXPECT_FALSE(norms::on());
  EXPECT_FALSE(norms::collect());
}

TEST(SquareNorm, ReadsEachType) {
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x8001, 0x7BFF, 0x7C00};
  const float as_half[] = {1, -2, 0x1p-24F, -0x1p-24F, 65504, HUGE_VALF};
  const std::uint16_t bfloats[] = {0x3F80, 0xC000, 0x7F80};
  const float as_bfloat[] = {1, -2, HUGE_VALF};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(square_norm::number_at(halves, i, square_norm::Type::kFloat16), as_half[i]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(square_norm::number_at(bfloats, i, square_norm::Type::kBfloat16), as_bfloat[i]);
  }
  EXPECT_EQ(square_norm::of(halves, 2, square_norm::Type::kFloat16), 5);
}

TEST(SquareNorm, LargeOnesAreSpreadOverBlocks) {
  EXPECT_EQ(square_norm::blocks_of(0), 1u);
  EXPECT_EQ(square_norm::blocks_of(square_norm::kThreads * square_norm::kPerThread), 1u);
  EXPECT_EQ(square_norm::blocks_of(square_norm::kThreads * square_norm::kPerThread + 1), 2u);
  EXPECT_EQ(square_norm::blocks_of(1ull << 40), square_norm::kMostBlocks);
}

}  // namespace
}  // namespace switchyard::shim
