// The mover's context: however often it is entered, one reference is held, and none afterwards.
#include "shim/contexts.h"

#include <algorithm>

#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

struct Primary {
  int references = 0;
  int fewest = 0;  // since it was retained first
  int active = 1;
  CUdevice device = 0;  // of the context that is made current
} g_primary;

class CurrentContext : public testing::EngineTest {
 protected:
  CurrentContext() {
    g_primary = {.references = 1};  // the application's
    g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
      *active = g_primary.active;
      return CUDA_SUCCESS;
    };
    g_driver.cuDevicePrimaryCtxRetain = [](CUcontext* out, CUdevice) {
      *out = reinterpret_cast<CUcontext>(0x1000);
      ++g_primary.references;
      return CUDA_SUCCESS;
    };
    g_driver.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) {
      --g_primary.references;
      g_primary.fewest = std::min(g_primary.fewest, g_primary.references);
      return CUDA_SUCCESS;
    };
    g_driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    g_driver.cuCtxGetDevice = [](CUdevice* device) {
      *device = g_primary.device;
      return CUDA_SUCCESS;
    };
  }
  swap::MoverContext context_;
};

TEST_F(CurrentContext, IsRetainedOnceHoweverOftenItIsEntered) {
  g_primary.fewest = 2;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(context_.enter(0));
    EXPECT_EQ(g_primary.references, 2);
  }
  EXPECT_EQ(g_primary.fewest, 2) << "it might have ended in between";
  context_.leave();
  EXPECT_EQ(g_primary.references, 1);
  context_.leave();
  EXPECT_EQ(g_primary.references, 1);
}

TEST_F(CurrentContext, AReferenceThatAResetTookIsNotGivenBack) {
  EXPECT_TRUE(context_.enter(0));
  g_primary.active = g_primary.references = 0;
  EXPECT_FALSE(context_.enter(0));
  context_.leave();
  EXPECT_EQ(g_primary.references, 0);
}

TEST_F(CurrentContext, OneOfAnotherGpuIsNotUsed) {
  g_primary.device = 1;
  EXPECT_FALSE(context_.enter(0));
  context_.leave();
  EXPECT_EQ(g_primary.references, 1);
}

}  // namespace
}  // namespace switchyard::shim
