// The count of captures falls by whatever ends them.
#include "shim/capture.h"

#include "shim/memory/owner.h"
#include "shim/rules/launch.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

CUstream stream_at(std::uintptr_t at) { return reinterpret_cast<CUstream>(at); }

class Captures : public EngineTest {
 protected:
  static void begin(CUstream stream, CUresult answer = CUDA_SUCCESS) {
    rules::begin_capture([=](CUstream) { return answer; }, stream);
  }
  static void end(CUstream stream, CUresult answer = CUDA_SUCCESS) {
    CUgraph graph = nullptr;
    rules::end_capture([=](CUstream, CUgraph*) { return answer; }, stream, &graph);
  }
  static void destroy(CUstream stream, CUresult answer = CUDA_SUCCESS) {
    rules::stream_destroy([=](CUstream) { return answer; }, stream);
  }
  static std::uint32_t count() { return process().captures.load(); }
  ~Captures() override {
    capture::clear();
    process().captures.store(0);
  }
  const CUstream first_ = stream_at(0x51), second_ = stream_at(0x52);
};

TEST_F(Captures, EndEachOnce) {
  begin(first_);
  begin(second_);
  EXPECT_EQ(count(), 2u);
  end(first_, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  end(first_, CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(count(), 1u);
  end(second_);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Captures, ThatTheDriverRefusesAreNotCounted) {
  begin(first_);
  begin(first_, CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(count(), 1u);
  end(first_);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Captures, VanishWithTheirStream) {
  begin(first_);
  begin(second_);
  destroy(first_, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(count(), 2u);
  destroy(first_);
  EXPECT_EQ(count(), 1u);
  end(second_);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Captures, OnTheNextStreamOfTheSameHandleGoOn) {
  begin(first_);
  const auto driver = [&](CUstream) {
    begin(first_);  // another thread, as soon as the driver has given the handle again
    return CUDA_SUCCESS;
  };
  rules::stream_destroy(driver, first_);
  EXPECT_EQ(count(), 1u);
  end(first_);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Captures, VanishWithTheirContext) {
  begin(first_);
  const CUcontext primary = world_.context;
  world_.context = reinterpret_cast<CUcontext>(0x2000);
  memory::context_created(0, world_.context);
  begin(second_);
  EXPECT_EQ(count(), 2u);
  memory::context_gone(world_.context, swap::made_context(world_.context));
  world_.context = primary;
  EXPECT_EQ(count(), 1u);
  memory::primary_gone(0);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Captures, BeyondTheTableAreCountedAllTheSame) {
  constexpr std::uintptr_t kMany = 1000;
  for (std::uintptr_t i = 0; i < kMany; ++i) begin(stream_at(0x1000 + 16 * i));
  EXPECT_EQ(count(), kMany);
  for (std::uintptr_t i = 0; i < kMany; ++i) end(stream_at(0x1000 + 16 * i));
  EXPECT_EQ(count(), 0u);
}

}  // namespace
}  // namespace switchyard::shim
