// The simulated driver as a test loads it, and a state file for the tests of one program.
//
// Threading: any thread.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels_ptx.h"
#include "report.h"

namespace fakecuda_tests {

inline void* library(const char* name) {
  void* found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  EXPECT_NE(nullptr, found) << dlerror();
  return found;
}

template <class Type>
Type symbol(const char* name) {
  static void* cuda = library("libcuda.so.1");
  static void* nvml = library("libnvidia-ml.so.1");
  void* found = dlsym(cuda, name);
  if (!found) found = dlsym(nvml, name);
  EXPECT_NE(nullptr, found) << name;
  return reinterpret_cast<Type>(found);
}

#define CU_SYMBOL(name) symbol<decltype(&::name)>(#name)
#define CU(name) CU_SYMBOL(name)

// Brings the GPU up in this process. Returns the kernel's function.
inline CUfunction start_gpu(const char* kernel = "busy") {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction found = nullptr;
  const bool ok = CU(cuInit)(0) == CUDA_SUCCESS &&
                  CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS &&
                  CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS &&
                  CU(cuModuleLoadData)(&module, kKernelsPtx) == CUDA_SUCCESS &&
                  CU(cuModuleGetFunction)(&found, module, kernel) == CUDA_SUCCESS;
  return ok ? found : nullptr;
}

// Waits for a condition that the machine's speed may delay but not prevent.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Of all processes, those of the compute engine.
inline std::vector<FakecudaGroup> compute_groups() {
  std::vector<FakecudaGroup> list(256);
  const int count = symbol<decltype(&fakecuda_groups)>("fakecuda_groups")(list.data(), 256);
  list.resize(static_cast<std::size_t>(std::max(count, 0)));
  std::erase_if(list, [](const FakecudaGroup& group) { return group.engine != 0; });
  return list;
}

inline FakecudaGroup group_of(pid_t pid) {
  for (const FakecudaGroup& group : compute_groups()) {
    if (group.pid == pid) return group;
  }
  return {};
}

class Simulation : public testing::Test {
 protected:
  void SetUp() override { setenv("FAKECUDA_STATE", state_file().c_str(), 1); }

  // This process attaches once, so all its tests share one file; their children come and go.
  static const std::string& state_file() {
    static const struct File {
      File() {
        char name[] = "/tmp/fakecuda-test-XXXXXX";
        const int fd = mkstemp(name);
        if (fd >= 0) close(fd);
        path = name;
      }
      ~File() {
        unlink(path.c_str());
        unlink((path + ".locks").c_str());
      }
      std::string path;
    } file;
    return file.path;
  }
  // Runs a check in a process of its own, so that each begins without a driver. 0: passed.
  static int in_process(const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid == 0) _exit(body());
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
};

// GPUs apart from those of the other tests, for a process that has none yet.
class OwnGpus {
 public:
  explicit OwnGpus(const char* count) : path_(std::string(getenv("FAKECUDA_STATE")) + ".own") {
    setenv("FAKECUDA_STATE", path_.c_str(), 1);
    setenv("FAKECUDA_MEMORY", "1GiB", 1);
    setenv("FAKECUDA_DEVICES", count, 1);
  }
  ~OwnGpus() {
    unlink(path_.c_str());
    unlink((path_ + ".locks").c_str());
  }
  OwnGpus(const OwnGpus&) = delete;
  OwnGpus& operator=(const OwnGpus&) = delete;

 private:
  std::string path_;
};

}  // namespace fakecuda_tests
