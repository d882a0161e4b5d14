#include "tests/shim/ipc/ipc_world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "shim/rules/ipc.h"

namespace switchyard::shim {

std::uint32_t sharing_monitor() { return testing::g_ipc != nullptr ? testing::g_ipc->monitor : 0; }

bool share(wire::Kind kind, const wire::Share& asked, Descriptors& descriptors,
           wire::Shared& answer) {
  static std::mutex one_after_the_other;
  const std::lock_guard hold(one_after_the_other);
  testing::IpcWorld& world = *testing::g_ipc;
  ++world.frames;
  if (world.during_frame) world.during_frame(kind);
  std::vector<int> came;
  for (std::uint32_t i = 0; i < descriptors.count; ++i) {
    came.push_back(::fcntl(descriptors.fd[i], F_DUPFD_CLOEXEC, testing::kFirstOfMonitor));
  }
  descriptors.close();
  const auto drop = [](std::vector<int>& all) {
    for (const int fd : all) ::close(fd);
    all.clear();
  };
  auto& kept = world.shares[{asked.key.words[0], asked.key.words[1]}];
  answer = {};
  if (!world.answers || world.monitor == 0 || (kind == wire::kShare && world.verdict != 0)) {
    drop(came);
    answer.verdict = world.verdict;
    return world.answers && world.monitor != 0;
  }
  if (kind == wire::kEndShare || (kind == wire::kShare && asked.first == 0)) drop(kept);
  if (kind == wire::kShare) {
    EXPECT_EQ(asked.first, kept.size());
    kept.insert(kept.end(), came.begin(), came.end());
    EXPECT_LE(kept.size(), asked.total);
  }
  if (kind != wire::kOpenShared) return true;
  if (kept.empty()) answer.verdict = wire::kNoSuchShare;
  answer.total = static_cast<std::uint32_t>(kept.size());
  for (std::size_t i = asked.first; i < kept.size() && answer.count < wire::kMostDescriptors; ++i) {
    descriptors.add(::dup(kept[i]));
    ++answer.count;
  }
  if (world.spoil) world.spoil(answer);
  return true;
}

namespace testing {

IpcWorld* g_ipc = nullptr;

namespace {

CUresult export_memory(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                       unsigned long long) {
  const auto found = g_swap->handles.find(handle);
  if (found == g_swap->handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const int fd = ::memfd_create("memory", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(found->second)) != 0) return CUDA_ERROR_UNKNOWN;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

CUresult import_memory(CUmemGenericAllocationHandle* out, void* fd, CUmemAllocationHandleType) {
  struct stat status {};
  if (::fstat(static_cast<int>(reinterpret_cast<std::intptr_t>(fd)), &status) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUmemAllocationProp properties{};
  return driver().cuMemCreate(out, static_cast<std::size_t>(status.st_size), &properties, 0);
}

}  // namespace

IpcTest::IpcTest() {
  g_ipc = &ipc_;
  g_driver.cuMemExportToShareableHandle = export_memory;
  g_driver.cuMemImportFromShareableHandle = import_memory;
  swap_.rdma = true;  // the driver can all
  files_ = open_files();
}

IpcTest::~IpcTest() {
  for (auto& [key, kept] : ipc_.shares) {
    for (const int fd : kept) ::close(fd);
  }
  EXPECT_EQ(open_files(), files_);
  g_ipc = nullptr;
}

CUresult IpcTest::get(CUipcMemHandle& handle, CUdeviceptr address) {
  const auto drivers = [](CUipcMemHandle*, CUdeviceptr) { return CUDA_ERROR_ILLEGAL_STATE; };
  return rules::ipc_get_handle(drivers, &handle, address);
}

CUresult IpcTest::open(CUdeviceptr& address, const CUipcMemHandle& handle) {
  const auto drivers = [](CUdeviceptr*, CUipcMemHandle, unsigned) {
    return CUDA_ERROR_ILLEGAL_STATE;
  };
  process().swappable.store(0);
  const CUresult result =
      rules::ipc_open(drivers, &address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  process().swappable.store(1);
  return result;
}

CUresult IpcTest::close(CUdeviceptr address) {
  return rules::ipc_close([](CUdeviceptr) { return CUDA_ERROR_ILLEGAL_STATE; }, address);
}

std::size_t IpcTest::open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

int IpcTest::memory_files() {
  int count = 0;
  for (int fd = 0; fd < kFirstOfMonitor; ++fd) {
    char link[32];
    char name[32] = {};
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, name, sizeof(name) - 1);
    count += length > 0 && std::strncmp(name, "/memfd:memory", 13) == 0 ? 1 : 0;
  }
  return count;
}

void IpcTest::expect_nothing_opened() {
  ipc::Bounds ignored;
  for (const auto& [address, bytes] : swap_.reserved) {
    EXPECT_FALSE(ipc::opened(address, ignored));
  }
}

}  // namespace testing
}  // namespace switchyard::shim
