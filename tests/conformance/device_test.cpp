// Devices, contexts, processes.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <thread>

#include "driver.h"
#include "spawned.h"

namespace conformance {
namespace {

using Device = Gpu;
using ContextStack = Gpu;
using Processes = Gpu;

TEST_F(Device, SaysWhatItIs) {
  int version = 0, count = 0, major = 0;
  char name[128] = {};
  std::size_t total = 0;
  EXPECT_OK(CU(cuDriverGetVersion)(&version));
  EXPECT_GE(version, 12000);
  EXPECT_OK(CU(cuDeviceGetCount)(&count));
  EXPECT_GE(count, 1);
  EXPECT_OK(CU(cuDeviceGetName)(name, sizeof name, device_));
  EXPECT_GT(strlen(name), 0u);
  EXPECT_OK(CU(cuDeviceTotalMem)(&total, device_));
  EXPECT_GE(total, std::size_t{64} << 20);
  EXPECT_OK(
      CU(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_));
  EXPECT_GE(major, 5);
  CUuuid one{}, two{};
  EXPECT_OK(CU(cuDeviceGetUuid)(&one, device_));
  EXPECT_OK(CU(cuDeviceGetUuid)(&two, device_));
  EXPECT_EQ(0, memcmp(&one, &two, sizeof one));
  CUdevice out_of_range = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGet)(&out_of_range, count));
}

TEST_F(Device, NamesErrors) {
  const char* text = nullptr;
  EXPECT_OK(CU(cuGetErrorName)(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ("CUDA_ERROR_OUT_OF_MEMORY", text);
  EXPECT_OK(CU(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ("out of memory", text);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuGetErrorName)(static_cast<CUresult>(1000), &text));
}

TEST_F(ContextStack, IsTheThreadsOwn) {
  CUcontext other = context_;
  std::thread([&] { CU(cuCtxGetCurrent)(&other); }).join();
  EXPECT_EQ(nullptr, other);
  EXPECT_OK(CU(cuCtxPushCurrent)(context_));
  EXPECT_OK(CU(cuCtxPopCurrent)(&other));
  EXPECT_EQ(context_, other);
  EXPECT_OK(CU(cuCtxGetCurrent)(&other));
  EXPECT_EQ(context_, other);
}

TEST_F(ContextStack, WithoutAContextCallsAreRefused) {
  ASSERT_CU(CU(cuCtxSetCurrent)(nullptr));
  CUdeviceptr memory = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, CU(cuMemAlloc)(&memory, 4096));
  ASSERT_CU(CU(cuCtxSetCurrent)(context_));
}

TEST_F(ContextStack, ASecondContextHasItsOwnMemory) {
  auto create = call<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  CUcontext second = nullptr, now = nullptr;
  ASSERT_CU(create(&second, 0, device_));
  EXPECT_OK(CU(cuCtxGetCurrent)(&now));
  EXPECT_EQ(second, now);
  CUdeviceptr memory = 0;
  EXPECT_OK(CU(cuMemAlloc)(&memory, 4096));
  CUcontext owner = nullptr;
  EXPECT_OK(CU(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  EXPECT_EQ(second, owner);
  EXPECT_OK(CU(cuCtxDestroy)(second));
  EXPECT_OK(CU(cuCtxSetCurrent)(context_));
}

TEST_F(ContextStack, PrimaryStateIsActiveWhileRetained) {
  unsigned flags = 0;
  int active = 0;
  EXPECT_OK(CU(cuDevicePrimaryCtxGetState)(device_, &flags, &active));
  EXPECT_EQ(1, active);
  CUcontext again = nullptr;
  EXPECT_OK(CU(cuDevicePrimaryCtxRetain)(&again, device_));
  EXPECT_EQ(context_, again);
  EXPECT_OK(CU(cuDevicePrimaryCtxRelease)(device_));
}

TEST_F(ContextStack, TellsStreamPriorities) {
  int least = 1, greatest = 1;
  EXPECT_OK(CU(cuCtxGetStreamPriorityRange)(&least, &greatest));
  EXPECT_EQ(0, least);
  EXPECT_LE(greatest, 0);
  CUstream made = nullptr;
  ASSERT_CU(CU(cuStreamCreateWithPriority)(&made, CU_STREAM_NON_BLOCKING, greatest));
  int priority = 1;
  EXPECT_OK(CU(cuStreamGetPriority)(made, &priority));
  EXPECT_EQ(greatest, priority);
  EXPECT_OK(CU(cuStreamDestroy)(made));
}

struct Visible {
  explicit Visible(const std::string& text) { setenv("CUDA_VISIBLE_DEVICES", text.c_str(), 1); }
  ~Visible() {
    if (known_) {
      setenv("CUDA_VISIBLE_DEVICES", before_.c_str(), 1);
    } else {
      unsetenv("CUDA_VISIBLE_DEVICES");
    }
  }
  bool known_ = getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  std::string before_ = known_ ? getenv("CUDA_VISIBLE_DEVICES") : "";
};

TEST_F(Processes, SeeTheGpusOfTheVariableAlone) {
  int count = 0;
  CUuuid uuid{};
  ASSERT_CU(CU(cuDeviceGetCount)(&count));
  ASSERT_CU(CU(cuDeviceGetUuid)(&uuid, count - 1));
  const std::string text = uuid_text(uuid);
  const std::string bytes(reinterpret_cast<const char*>(&uuid), sizeof uuid);
  {
    const Visible one(text);
    EXPECT_EQ(0, run_child("visible-one", bytes));
  }
  {
    const Visible until_the_first_bad(text + ",no-gpu,0");
    EXPECT_EQ(0, run_child("visible-one", bytes));
  }
  for (const char* none : {"-1", "no-gpu"}) {
    const Visible nothing(none);
    EXPECT_EQ(0, run_child("visible-none"));
  }
}

TEST_F(Processes, BeforeInitCallsAreRefused) { EXPECT_EQ(0, run_child("before-init")); }
TEST_F(Processes, ForkBeforeInitGivesTwoUsers) { EXPECT_EQ(0, run_child("fork-before-init")); }
TEST_F(Processes, ForkAfterInitLeavesTheChildWithout) {
  EXPECT_EQ(0, run_child("fork-after-init"));
}

TEST_F(Processes, IpcMemoryIsTheSameMemory) {
  CUdeviceptr memory = alloc(4 << 20);
  ASSERT_CU(CU(cuMemsetD32)(memory, 41, 1024));
  ASSERT_CU(CU(cuCtxSynchronize)());
  CUipcMemHandle handle;
  ASSERT_CU(CU(cuIpcGetMemHandle)(&handle, memory));
  CUipcMemHandle inside;
  ASSERT_CU(CU(cuIpcGetMemHandle)(&inside, memory + 9));
  EXPECT_EQ(0, memcmp(&handle, &inside, sizeof handle)) << "of the allocation, wherever in it";
  CUdeviceptr own = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT,
            CU(cuIpcOpenMemHandle)(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(0, run_child("ipc", std::string(reinterpret_cast<char*>(&handle), sizeof handle)));
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 42), read(memory, 1024));
}

TEST_F(Processes, DeathGivesMemoryBack) {
  const std::uint64_t before = free_bytes();
  EXPECT_EQ(128 + 9, run_child("die"));
  std::uint64_t after = 0;
  for (int i = 0; i < 1000 && after + (64 << 20) < before; ++i) {  // the driver takes its time
    after = free_bytes();
    if (after + (64 << 20) < before) usleep(10'000);
  }
  EXPECT_GE(after + (64 << 20), before);
}

}  // namespace
}  // namespace conformance
