// The bytes that copies have moved, by how their call says it.
#include "shim/rules/copied.h"

#include "shim/rules/launch.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

// Link and device.
using Bytes = std::pair<std::uint64_t, std::uint64_t>;

class CopiedBytes : public EngineTest {
 protected:
  CopiedBytes() { use_streams(); }
  ~CopiedBytes() override {
    capture::clear();
    process().captures.store(0);
  }
  template <Copied kCopied, typename... Args>
  Bytes after(Args... args) {
    rules::copy<kCopied>([](Args...) { return CUDA_SUCCESS; }, args...);
    return bytes();
  }
  Bytes bytes() { return {lane().link_bytes.load(), lane().device_bytes.load()}; }

  static constexpr CUdeviceptr kHere = 0x1000, kThere = 0x2000;
  const CUstream stream_ = reinterpret_cast<CUstream>(0x51);
  const std::size_t size_ = 3000;
};

TEST_F(CopiedBytes, OfAPlainCopyAreItsLastArgument) {
  const void* host = &host;
  EXPECT_EQ(after<Copied::kLink>(kHere, host, size_), Bytes(3000, 0));
  EXPECT_EQ(after<Copied::kDevice>(kHere, kThere, size_), Bytes(3000, 3000));
}

TEST_F(CopiedBytes, StandBeforeTheStream) {
  EXPECT_EQ(after<Copied::kLink>(kHere, kThere, size_, stream_), Bytes(3000, 0));
  rules::copy_to_per_thread<Copied::kLink>(
      [](CUdeviceptr, CUdeviceptr, std::size_t, CUstream) { return CUDA_SUCCESS; }, kHere, kThere,
      size_, stream_);
  EXPECT_EQ(bytes(), Bytes(6000, 0));
}

TEST_F(CopiedBytes, OfTheFirstVersionsAreCountedToo) {
  EXPECT_EQ(after<Copied::kDevice>(1u, 2u, 3000u), Bytes(0, 3000));
  CUDA_MEMCPY2D_v1 box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.WidthInBytes = 1u << 31;
  box.Height = 4;
  const auto* at = &box;
  EXPECT_EQ(after<Copied::kBox>(at), Bytes(1ull << 33, 3000));
}

TEST_F(CopiedBytes, OfABoxGoWhereItsMemoryIs) {
  CUDA_MEMCPY2D flat{};
  flat.WidthInBytes = 100;
  flat.Height = 7;
  const auto* at = &flat;
  Bytes expected{};
  for (const auto from :
       {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_UNIFIED}) {
    for (const auto to :
         {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_UNIFIED}) {
      flat.srcMemoryType = from;
      flat.dstMemoryType = to;
      const bool inside = (from == CU_MEMORYTYPE_DEVICE || from == CU_MEMORYTYPE_ARRAY) &&
                          (to == CU_MEMORYTYPE_DEVICE || to == CU_MEMORYTYPE_ARRAY);
      (inside ? expected.second : expected.first) += 700;
      EXPECT_EQ(after<Copied::kBox>(at, stream_), expected) << from << " to " << to;
    }
  }
}

TEST_F(CopiedBytes, OfABoxWithADepthAreThatManyTimesAsMany) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.WidthInBytes = 100;
  box.Height = 7;
  box.Depth = 3;
  const auto* at = &box;
  EXPECT_EQ(after<Copied::kBox>(at, stream_), Bytes(0, 2100));
}

TEST_F(CopiedBytes, OfABoxBetweenGpusGoOverALink) {
  CUDA_MEMCPY3D_PEER box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.WidthInBytes = 100;
  box.Height = 7;
  box.Depth = 3;
  const auto* at = &box;
  EXPECT_EQ(after<Copied::kBox>(at, stream_), Bytes(2100, 0));
}

TEST_F(CopiedBytes, OfABatchAreTheSum) {
  CUdeviceptr at[3] = {};
  std::size_t sizes[3] = {1000, 200, 30};
  CUdeviceptr* to = at;
  EXPECT_EQ(after<Copied::kBatch>(to, to, &sizes[0], std::size_t{3}, 0ull, stream_),
            Bytes(1230, 0));
}

#if CUDA_VERSION >= 12080
TEST_F(CopiedBytes, OfABatchOfBoxesAreThoseBetweenAddresses) {
  CUDA_MEMCPY3D_BATCH_OP boxes[3] = {};
  for (auto& box : boxes) {
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.extent = {100, 7, 3};
  }
  boxes[1].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  EXPECT_EQ(after<Copied::kBoxes>(std::size_t{3}, &boxes[0], 0ull, stream_), Bytes(4200, 0));
}
#endif

TEST_F(CopiedBytes, OfSetsAndPrefetchesAreNone) {
  EXPECT_EQ(after<Copied::kUncounted>(kHere, 1u, size_, stream_), Bytes(0, 0));
  EXPECT_EQ(lane().copies.load(), 1u);
}

TEST_F(CopiedBytes, OfWhatTheDriverRefusesAreNotRead) {
  const CUDA_MEMCPY3D* nothing = nullptr;
  const auto refuses = [](auto...) { return CUDA_ERROR_INVALID_VALUE; };
  EXPECT_EQ(rules::copy<Copied::kBox>(refuses, nothing), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(rules::copy<Copied::kBox>(refuses, nothing, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(rules::copy<Copied::kLink>(refuses, kHere, kThere, size_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bytes(), Bytes(0, 0));
}

TEST_F(CopiedBytes, OfACopyIntoACaptureAreNone) {
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, stream_);
  world_.captured.insert(stream_);
  EXPECT_EQ(after<Copied::kLink>(kHere, kThere, size_, stream_), Bytes(0, 0));
  const CUstream other = reinterpret_cast<CUstream>(0x52);
  EXPECT_EQ(after<Copied::kLink>(kHere, kThere, size_, other), Bytes(3000, 0));
}

}  // namespace
}  // namespace switchyard::shim
