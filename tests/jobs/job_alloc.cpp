// job_alloc [--door DOOR] STEP...: takes and frees device memory, step by step, and says how it
// went.
//
//   alloc:MIB async:MIB pitch:MIB managed:MIB vmm:MIB array:MIB   take so much   → "alloc RESULT"
//   alloc:1025k, and so on: the same in KiB
//   host:MIB   cuMemCreate in host memory                                        → "host RESULT"
//   free       gives the newest back                                             → "free RESULT"
//   freeall    gives all back                                                    → "freeall RESULT"
//   info       cuMemGetInfo                                                      → "info FREE
//   TOTAL" total      cuDeviceTotalMem                                                  → "total
//   BYTES" wait       until a line comes on stdin                                       → "waiting"
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "driver_api.h"

namespace {

class Memory {
 public:
  Memory(const jobs::Api& api, CUdevice device) : api_(api), device_(device) {}

  CUresult take(const std::string& kind, std::size_t bytes) {
    if (kind == "vmm" || kind == "host") return take_mapped(kind == "host", bytes);
    if (kind == "array") return take_array(bytes);
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (kind == "alloc") result = api_.cuMemAlloc(&address, bytes);
    if (kind == "pitch") result = api_.cuMemAllocPitch(&address, &pitch, 1 << 20, bytes >> 20, 4);
    if (kind == "managed") {
      result = api_.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    }
    if (kind == "async") {
      result = api_.cuMemAllocAsync(&address, bytes, nullptr);
      keep(result, [this, address] {
        const CUresult freed = api_.cuMemFreeAsync(address, nullptr);
        return freed == CUDA_SUCCESS ? api_.cuStreamSynchronize(nullptr) : freed;
      });
      return result;
    }
    keep(result, [this, address] { return api_.cuMemFree(address); });
    return result;
  }

  CUresult give_back() {
    if (held_.empty()) return CUDA_ERROR_INVALID_VALUE;
    const auto give = std::move(held_.back());
    held_.pop_back();
    return give();
  }

  CUresult give_all_back() {
    CUresult result = CUDA_SUCCESS;
    while (!held_.empty()) {
      const CUresult one = give_back();
      if (one != CUDA_SUCCESS) result = one;
    }
    return result;
  }

 private:
  void keep(CUresult result, std::function<CUresult()> give) {
    if (result == CUDA_SUCCESS) held_.push_back(std::move(give));
  }

  CUresult take_array(std::size_t bytes) {
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = 16384;
    shape.Height = bytes / (16384 * 4);
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    CUarray array = nullptr;
    const CUresult result = api_.cuArrayCreate(&array, &shape);
    keep(result, [this, array] { return api_.cuArrayDestroy(array); });
    return result;
  }

  CUresult take_mapped(bool host, std::size_t bytes) {
    CUmemAllocationProp where{};
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location.type = host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    where.location.id = host ? 0 : device_;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = api_.cuMemCreate(&handle, bytes, &where, 0);
    if (result != CUDA_SUCCESS) return result;
    CUdeviceptr address = 0;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = api_.cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = api_.cuMemMap(address, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) result = api_.cuMemSetAccess(address, bytes, &access, 1);
    keep(result, [this, address, bytes, handle] {
      const CUresult unmapped = api_.cuMemUnmap(address, bytes);
      api_.cuMemAddressFree(address, bytes);
      const CUresult released = api_.cuMemRelease(handle);
      return unmapped != CUDA_SUCCESS ? unmapped : released;
    });
    return result;
  }

  const jobs::Api& api_;
  CUdevice device_;
  std::vector<std::function<CUresult()>> held_;
};

void show(const std::string& step, const jobs::Api& api, Memory& memory, CUdevice device) {
  const auto colon = step.find(':');
  const std::string kind = step.substr(0, colon);
  if (colon != std::string::npos) {
    const unsigned unit = step.back() == 'k' ? 10 : 20;
    const std::size_t bytes = std::strtoull(step.c_str() + colon + 1, nullptr, 10) << unit;
    std::printf("%s %d\n", kind.c_str(), static_cast<int>(memory.take(kind, bytes)));
  } else if (step == "free") {
    std::printf("free %d\n", static_cast<int>(memory.give_back()));
  } else if (step == "freeall") {
    std::printf("freeall %d\n", static_cast<int>(memory.give_all_back()));
  } else if (step == "info") {
    std::size_t left = 0;
    std::size_t total = 0;
    api.cuMemGetInfo(&left, &total);
    std::printf("info %zu %zu\n", left, total);
  } else if (step == "total") {
    std::size_t total = 0;
    api.cuDeviceTotalMem(&total, device);
    std::printf("total %zu\n", total);
  } else if (step == "wait") {
    std::printf("waiting\n");
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) std::exit(0);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> steps(argv + 1, argv + argc);
  std::string door;
  if (steps.size() > 1 && steps[0] == "--door") {
    door = steps[1];
    steps.erase(steps.begin(), steps.begin() + 2);
  }
  jobs::Api api;
  CUdevice device = 0;
  const char* why = jobs::load(api, door);
  if (why == nullptr) why = jobs::open_gpu(api, device);
  if (why != nullptr) {
    std::printf("error %s\n", why);
    return 1;
  }
  Memory memory(api, device);
  for (const std::string& step : steps) show(step, api, memory, device);
  return 0;
}
