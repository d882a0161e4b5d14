#include "shim/rules/arrays.h"

#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using memory::array_bytes;

CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth, CUarray_format format,
                              unsigned channels, unsigned flags = 0) {
  return {width, height, depth, format, channels, flags};
}

TEST(ArrayBytes, OneTwoAndThreeDimensions) {
  EXPECT_EQ(array_bytes(shape(100, 0, 0, CU_AD_FORMAT_FLOAT, 1), 1), 400u);
  EXPECT_EQ(array_bytes(shape(100, 10, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4), 1), 4000u);
  EXPECT_EQ(array_bytes(shape(16, 16, 16, CU_AD_FORMAT_HALF, 2), 1), 16u * 16 * 16 * 4);
}

TEST(ArrayBytes, BlockCompressedFormatsCountBlocks) {
  const auto bc1 = static_cast<CUarray_format>(0x91);
  const auto bc7 = static_cast<CUarray_format>(0x9d);
  EXPECT_EQ(array_bytes(shape(64, 64, 0, bc1, 4), 1), 16u * 16 * 8);
  EXPECT_EQ(array_bytes(shape(5, 5, 0, bc7, 4), 1), 2u * 2 * 16);
}

TEST(ArrayBytes, VideoFormatsCountTheirPlanes) {
  EXPECT_EQ(array_bytes(shape(640, 480, 0, CU_AD_FORMAT_NV12, 3), 1), 640u * 480 * 3 / 2);
}

TEST(ArrayBytes, AMipChainHalvesEveryExtent) {
  EXPECT_EQ(array_bytes(shape(8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1), 4), 64u + 16 + 4 + 1);
  EXPECT_EQ(array_bytes(shape(8, 8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 1), 2), 512u + 64);
  EXPECT_EQ(array_bytes(shape(8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1), 99), 64u + 16 + 4 + 1);
}

TEST(ArrayBytes, LayersDoNotShrink) {
  EXPECT_EQ(array_bytes(shape(8, 8, 5, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_LAYERED), 2),
            5u * (64 + 16));
  EXPECT_EQ(array_bytes(shape(8, 8, 6, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_CUBEMAP), 2),
            6u * (64 + 16));
}

TEST(ArrayBytes, SparseAndDeferredArraysHoldNothingThemselves) {
  EXPECT_EQ(array_bytes(shape(64, 64, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SPARSE), 1), 0u);
  EXPECT_EQ(array_bytes(shape(64, 64, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_DEFERRED_MAPPING), 1),
            0u);
}

TEST(ArrayBytes, NonsenseSaturates) {
  EXPECT_EQ(array_bytes(shape(SIZE_MAX, SIZE_MAX, SIZE_MAX, CU_AD_FORMAT_FLOAT, 4), 5), UINT64_MAX);
}

class Arrays : public EngineTest {};

TEST_F(Arrays, AnArrayIsChargedUntilItIsDestroyed) {
  const CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 4};
  CUarray array = nullptr;
  const auto create = [](CUarray* out, const CUDA_ARRAY_DESCRIPTOR*) {
    *out = reinterpret_cast<CUarray>(0x77);
    return CUDA_SUCCESS;
  };
  ASSERT_EQ(rules::array_create(create, &array, &flat), CUDA_SUCCESS);
  EXPECT_EQ(used(), 16 * kMiB);
  EXPECT_EQ(stays(Stays::kArrays), 16 * kMiB);
  const auto destroy = [](CUarray) { return CUDA_SUCCESS; };
  ASSERT_EQ(rules::array_destroy(destroy, array), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(stays(Stays::kArrays), 0u);
  // A level or a plane has the same handle type and was never charged.
  ASSERT_EQ(rules::array_destroy(destroy, array), CUDA_SUCCESS);
  expect_balanced();
}

TEST_F(Arrays, AMipmapIsChargedWithAllItsLevels) {
  const auto volume = shape(256, 256, 0, CU_AD_FORMAT_FLOAT, 1);
  CUmipmappedArray mipmap = nullptr;
  const auto create = [](CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned) {
    *out = reinterpret_cast<CUmipmappedArray>(0x77);
    return CUDA_SUCCESS;
  };
  ASSERT_EQ(rules::array_create(create, &mipmap, &volume, 2u), CUDA_SUCCESS);
  EXPECT_EQ(used(), 256u * 256 * 4 + 128 * 128 * 4);
  ASSERT_EQ(rules::array_destroy([](CUmipmappedArray) { return CUDA_SUCCESS; }, mipmap),
            CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Arrays, PastTheQuotaAndByTheDriversRefusalNothingIsCharged) {
  set_quota(kMiB);
  const auto volume = shape(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1);
  CUarray array = nullptr;
  const auto refuse = [](CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::array_create(refuse, &array, &volume), CUDA_ERROR_OUT_OF_MEMORY);
  set_quota(100 * kMiB);
  EXPECT_EQ(rules::array_create(refuse, &array, &volume), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

// A driver of which no extent may be above 4096.
CUresult create_checked(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* of) {
  if (process().captures.load() != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (out == nullptr || of->NumChannels == 3) return CUDA_ERROR_INVALID_VALUE;
  if (of->Width > 4096 || of->Height > 4096 || of->Depth > 4096) return CUDA_ERROR_INVALID_VALUE;
  EXPECT_LE(of->Width * of->Height * of->Depth, 4096u) << "nothing is taken beyond the quota";
  *out = reinterpret_cast<CUarray>(0x77);
  return CUDA_SUCCESS;
}

TEST_F(Arrays, PastTheQuotaWhatTheDriverRefusesAnywayIsRefusedAsTheDriverDoes) {
  set_quota(kMiB);
  static int destroyed = 0;
  destroyed = 0;
  g_driver.cuArrayDestroy = [](CUarray) { return ++destroyed, CUDA_SUCCESS; };
  CUarray array = nullptr;
  const auto create = [&](const CUDA_ARRAY3D_DESCRIPTOR& of, CUarray* out) {
    return rules::array_create(create_checked, out, &of);
  };
  const auto right = shape(64, 64, 4096, CU_AD_FORMAT_FLOAT, 1);
  EXPECT_EQ(create(right, &array), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(destroyed, 3) << "each extent is tried";
  EXPECT_EQ(create(right, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(shape(64, 64, 4096, CU_AD_FORMAT_FLOAT, 3), &array), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(shape(4097, 64, 64, CU_AD_FORMAT_FLOAT, 1), &array), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(shape(64, 4097, 64, CU_AD_FORMAT_FLOAT, 1), &array), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(shape(64, 64, 4097, CU_AD_FORMAT_FLOAT, 1), &array), CUDA_ERROR_INVALID_VALUE);
  const auto huge = shape(size_t{1} << 50, 7, 0, CU_AD_FORMAT_FLOAT, 1);
  EXPECT_EQ(create(huge, &array), CUDA_ERROR_INVALID_VALUE);
  process().captures.store(1);
  EXPECT_EQ(create(right, &array), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  process().captures.store(0);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Arrays, APlainOnePastTheQuotaIsRefusedWithoutTheDriver) {
  set_quota(kMiB);
  const auto plain = shape(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1);
  const auto never = [](CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*) {
    ADD_FAILURE() << "called";
    return CUDA_SUCCESS;
  };
  CUarray array = nullptr;
  EXPECT_EQ(rules::array_create(never, &array, &plain), CUDA_ERROR_OUT_OF_MEMORY);
}

}  // namespace
}  // namespace switchyard::shim
