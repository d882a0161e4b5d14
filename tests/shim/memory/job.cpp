// shim_memory_job WHAT: a job that checks its own memory, and says what it saw.
//
//   full KIND MIB       takes pieces until it is refused, frees all, and does so again
//                       → "taken MIB MIB", "result CODE", "left FREE FREE"
//   random SEED COUNT   takes and frees pieces of all kinds at random → "left FREE FREE"
//   greedy SEED COUNT   says "ready", waits for a byte, and does the same, going on when it is
//                       refused → "refused N"
//   info                → "info FREE TOTAL", "total TOTAL", "nvml FREE TOTAL USED", "nvml2 ..."
//   nvml                the NVML lines alone: cuInit is never called
//   infos, nvmls        the same, and again after each line on stdin
//   hold MIB            takes so much → "holds RESULT", and waits
//   contexts            memory that ends with its context → "left FREE FREE FREE"
//   each MIB            takes a piece of each kind, two of 1 MiB, and one that it exports, imports
//                       and maps again, and keeps them all
//   shared              memory that is exported and imported again → "left FREE FREE"
//   opened HANDLE-FILE, lent HANDLE-FILE   IPC between two processes
//   local BYTES...      launches a kernel with so much local memory for a thread → "launch RESULT"
//   many                makes contexts until it is refused → "made COUNT RESULT"
//   churn THREADS ROUNDS  threads make a context, allocate, and end it without a free
//                       → "left FREE FREE"
//   fork                a child asks NVML and libcuda after the parent used them
//
// All but `nvml` say "waiting" then. `infos` and `nvmls` go on until stdin ends, the others until a
// line comes there.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/shim/memory/kinds.h"

using memory_job::Give;
using memory_job::kinds;
using memory_job::kMiB;

namespace {

std::size_t free_bytes() {
  std::size_t left = 0;
  std::size_t total = 0;
  cuMemGetInfo(&left, &total);
  return left;
}

// The free memory once it stays the same: the monitor measures contexts a moment after they are
// made.
std::size_t steady_free_bytes() {
  std::size_t last = free_bytes();
  for (int same = 0, tries = 0; same < 3 && tries < 300; ++tries) {
    ::usleep(100 * 1000);
    const std::size_t now = free_bytes();
    same = now == last ? same + 1 : 0;
    last = now;
  }
  return last;
}

[[noreturn]] void fail(const char* what, int code) {
  std::printf("error %s %d\n", what, code);
  std::fflush(stdout);
  std::_Exit(1);
}

void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) fail(what, result);
}

CUresult make_context(CUcontext* context) {
#if CUDA_VERSION >= 13000
  return cuCtxCreate(context, nullptr, 0, 0);
#else
  return cuCtxCreate(context, 0, 0);
#endif
}

void open_gpu() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  must(cuInit(0), "cuInit");
  must(cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

void give_all(std::vector<Give>& held) {
  for (const Give& give : held) must(give(), "free");
  held.clear();
  memory_job::settle();
}

void full(const char* name, std::size_t mib) {
  const memory_job::Kind* kind = memory_job::find_kind(name);
  if (kind == nullptr) fail("kind", 0);
  const std::size_t before = steady_free_bytes();
  std::size_t taken[2] = {};
  CUresult result = CUDA_SUCCESS;
  for (std::size_t& count : taken) {
    std::vector<Give> held;
    for (;;) {
      Give give;
      result = kind->take(mib, give);
      if (result != CUDA_SUCCESS) break;
      held.push_back(std::move(give));
    }
    count = held.size() * mib;
    give_all(held);
  }
  std::printf("taken %zu %zu\nresult %d\nleft %zu %zu\n", taken[0], taken[1], result, before,
              steady_free_bytes());
}

// Refusals are counted when they are allowed, else they end the job.
int at_random(unsigned seed, int count, bool may_fail) {
  std::mt19937 random(seed);
  std::vector<Give> held;
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const bool take = held.size() < 4 || (held.size() < 24 && random() % 2 == 0);
    if (take) {
      const memory_job::Kind& kind = kinds()[random() % kinds().size()];
      Give give;
      const CUresult result = kind.take(random() % 15 + 1, give);
      if (result == CUDA_SUCCESS) {
        held.push_back(std::move(give));
        continue;
      }
      if (!may_fail || result != CUDA_ERROR_OUT_OF_MEMORY) fail(kind.name, result);
      ++refused;
    }
    if (held.empty()) continue;
    std::swap(held[random() % held.size()], held.back());
    must(held.back()(), "free");
    held.pop_back();
  }
  give_all(held);
  return refused;
}

// A byte and no line: others read from the same pipe.
void greedy(unsigned seed, int count) {
  std::printf("ready\n");
  std::fflush(stdout);
  char byte = 0;
  if (::read(STDIN_FILENO, &byte, 1) != 1) fail("read", 0);
  std::printf("refused %d\n", at_random(seed, count, true));
}

void random_work(unsigned seed, int count) {
  const std::size_t before = steady_free_bytes();
  at_random(seed, count, false);
  std::printf("left %zu %zu\n", before, steady_free_bytes());
}

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

template <typename Function>
Function nvml(const char* name) {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  void* found = library != nullptr ? ::dlsym(library, name) : nullptr;
  if (found == nullptr) fail(name, 0);
  return reinterpret_cast<Function>(found);
}

void nvml_info() {
  void* device = nullptr;
  NvmlMemory one{};
  NvmlMemoryV2 two{};
  two.version = sizeof(two) | 2u << 24;
  if (int code = nvml<int (*)()>("nvmlInit_v2")()) fail("nvmlInit_v2", code);
  if (int code = nvml<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(0, &device)) {
    fail("nvmlDeviceGetHandleByIndex_v2", code);
  }
  if (int code = nvml<int (*)(void*, NvmlMemory*)>("nvmlDeviceGetMemoryInfo")(device, &one)) {
    fail("nvmlDeviceGetMemoryInfo", code);
  }
  if (int code = nvml<int (*)(void*, NvmlMemoryV2*)>("nvmlDeviceGetMemoryInfo_v2")(device, &two)) {
    fail("nvmlDeviceGetMemoryInfo_v2", code);
  }
  std::printf("nvml %llu %llu %llu\nnvml2 %llu %llu %llu %llu\n", one.free, one.total, one.used,
              two.free, two.total, two.used, two.reserved);
}

void info() {
  steady_free_bytes();
  std::size_t left = 0;
  std::size_t total = 0;
  std::size_t size = 0;
  must(cuMemGetInfo(&left, &total), "cuMemGetInfo");
  must(cuDeviceTotalMem(&size, 0), "cuDeviceTotalMem");
  std::printf("info %zu %zu\ntotal %zu\n", left, total, size);
  nvml_info();
}

void contexts() {
  const std::size_t before = steady_free_bytes();
  CUcontext primary = nullptr;
  must(cuCtxGetCurrent(&primary), "cuCtxGetCurrent");
  CUcontext context = nullptr;
  must(make_context(&context), "cuCtxCreate");
  CUdeviceptr at = 0;
  must(cuMemAlloc(&at, 64 * kMiB), "cuMemAlloc");
  must(cuCtxDestroy(context), "cuCtxDestroy");
  must(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
  const std::size_t between = steady_free_bytes();
  must(cuMemAlloc(&at, 64 * kMiB), "cuMemAlloc");
  must(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
  open_gpu();
  std::printf("left %zu %zu %zu\n", before, between, steady_free_bytes());
}

CUmemGenericAllocationHandle make_exportable(std::size_t mib) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle made = 0;
  must(cuMemCreate(&made, mib * kMiB, &properties, 0), "cuMemCreate");
  return made;
}

CUmemGenericAllocationHandle export_and_import(CUmemGenericAllocationHandle made) {
  CUmemGenericAllocationHandle imported = 0;
  int file = -1;
  must(cuMemExportToShareableHandle(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
       "cuMemExportToShareableHandle");
  void* handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(file));
  must(cuMemImportFromShareableHandle(&imported, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
       "cuMemImportFromShareableHandle");
  ::close(file);
  return imported;
}

void each(std::size_t mib) {
  for (const memory_job::Kind& kind : kinds()) {
    Give give;
    must(kind.take(mib, give), kind.name);
  }
  CUdeviceptr at = 0;
  must(cuMemAlloc(&at, kMiB), "cuMemAlloc");
  must(cuMemAllocAsync(&at, kMiB, nullptr), "cuMemAllocAsync");  // the driver's own pool's
  must(cuMemAddressReserve(&at, mib * kMiB, 0, 0, 0), "cuMemAddressReserve");
  must(cuMemMap(at, mib * kMiB, 0, export_and_import(make_exportable(mib)), 0), "cuMemMap");
}

void shared() {
  const CUmemGenericAllocationHandle made = make_exportable(64);
  const std::size_t once = steady_free_bytes();
  const CUmemGenericAllocationHandle imported = export_and_import(made);
  std::printf("left %zu %zu\n", once, steady_free_bytes());
  must(cuMemRelease(imported), "cuMemRelease");
  must(cuMemRelease(made), "cuMemRelease");
}

void lend(const char* path) {
  CUdeviceptr at = 0;
  CUipcMemHandle handle{};
  must(cuMemAlloc(&at, 64 * kMiB), "cuMemAlloc");
  must(cuIpcGetMemHandle(&handle, at), "cuIpcGetMemHandle");
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(&handle), sizeof(handle));
}

void open_lent(const char* path) {
  CUdeviceptr at = 0;
  CUipcMemHandle handle{};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&handle), sizeof(handle));
  const std::size_t before = steady_free_bytes();
  must(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  std::printf("left %zu %zu\n", before, steady_free_bytes());
  must(cuIpcCloseMemHandle(at), "cuIpcCloseMemHandle");
}

void launch_local(const std::string& bytes) {
  const std::string image =
      ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry local()\n{\n.local .align 16 "
      ".b8 __local_depot0[" +
      bytes + "];\nret;\n}\n";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  must(cuModuleLoadData(&module, image.c_str()), "cuModuleLoadData");
  must(cuModuleGetFunction(&function, module, "local"), "cuModuleGetFunction");
  std::printf("launch %d\n",
              cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  must(cuCtxSynchronize(), "cuCtxSynchronize");
}

void make_many() {
  int count = 0;
  CUcontext context = nullptr;
  CUresult result = CUDA_SUCCESS;
  while (count < 200 && (result = make_context(&context)) == CUDA_SUCCESS) ++count;
  std::printf("made %d %d\n", count, result);
}

void churn(int threads, int rounds) {
  const std::size_t before = steady_free_bytes();
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([=] {
      for (int i = 0; i < rounds; ++i) {
        CUcontext context = nullptr;
        CUdeviceptr at = 0;
        must(make_context(&context), "cuCtxCreate");
        for (int piece = 0; piece < 3; ++piece) must(cuMemAlloc(&at, 4 * kMiB), "cuMemAlloc");
        must(cuCtxDestroy(context), "cuCtxDestroy");
      }
    });
  }
  for (std::thread& each : all) each.join();
  std::printf("left %zu %zu\n", before, steady_free_bytes());
}

void forked() {
  CUdeviceptr at = 0;
  must(cuMemAlloc(&at, 64 * kMiB), "cuMemAlloc");
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    nvml_info();
    std::fflush(stdout);
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  must(cuMemFree(at), "cuMemFree");
  std::printf("child %d\n", status);
}

template <typename Say>
int say_again_and_again(Say say) {
  for (std::string line;;) {
    say();
    std::printf("waiting\n");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return 0;
  }
}

bool run(const std::string& what, char** words) {
  if (what == "full")
    full(words[0], std::strtoull(words[1], nullptr, 10));
  else if (what == "random")
    random_work(std::atoi(words[0]), std::atoi(words[1]));
  else if (what == "greedy")
    greedy(std::atoi(words[0]), std::atoi(words[1]));
  else if (what == "info")
    info();
  else if (what == "contexts")
    contexts();
  else if (what == "each")
    each(std::strtoull(words[0], nullptr, 10));
  else if (what == "shared")
    shared();
  else if (what == "lent")
    lend(words[0]);
  else if (what == "opened")
    open_lent(words[0]);
  else if (what == "local") {
    for (char** bytes = words; *bytes != nullptr; ++bytes) launch_local(*bytes);
  } else if (what == "many")
    make_many();
  else if (what == "churn")
    churn(std::atoi(words[0]), std::atoi(words[1]));
  else if (what == "fork")
    forked();
  else if (what == "hold") {
    CUdeviceptr at = 0;
    std::printf("holds %d\n", cuMemAlloc(&at, std::strtoull(words[0], nullptr, 10) * kMiB));
  } else
    return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "nvml") {
    nvml_info();
    return 0;
  }
  if (what == "nvmls") return say_again_and_again(nvml_info);
  open_gpu();
  if (what == "infos") return say_again_and_again(info);
  if (!run(what, argv + 2)) fail("usage", 2);
  std::printf("waiting\n");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  return 0;
}
