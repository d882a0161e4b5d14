#include "shim/own_kernel.h"

#include <string.h>
#include <sys/mman.h>

namespace switchyard::shim {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

CUresult load_kernel(const char* ptx, const char* name, CUfunction& kernel) {
  const Driver& calls = driver();
  if (calls.cuLibraryLoadData == nullptr || calls.cuLibraryGetKernel == nullptr) return kNoSuchCall;
  CUlibrary library = nullptr;
  CUkernel found = nullptr;
  CUresult result =
      calls.cuLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) return result;
  result = calls.cuLibraryGetKernel(&found, library, name);
  if (result != CUDA_SUCCESS) {
    if (calls.cuLibraryUnload != nullptr) calls.cuLibraryUnload(library);
    return result;
  }
  kernel = reinterpret_cast<CUfunction>(found);
  return CUDA_SUCCESS;
}

bool PinnedResults::open(std::size_t bytes, int fill) {
  if (driver().cuMemHostRegister_v2 == nullptr || driver().cuMemHostUnregister == nullptr ||
      driver().cuMemHostGetDevicePointer_v2 == nullptr) {
    return false;
  }
  bytes_ = (bytes + kPage - 1) / kPage * kPage;
  void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  host_ = at;
  // After a fork the GPU would write where the parent no longer reads.
  if (::madvise(at, bytes_, MADV_DONTFORK) == 0) {
    ::memset(at, fill, bytes_);
    if (pin()) return true;
  }
  close();
  return false;
}

bool PinnedResults::pin() {
  pinned_ =
      driver().cuMemHostRegister_v2(host_, bytes_, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS;
  return pinned_ && driver().cuMemHostGetDevicePointer_v2(&device_, host_, 0) == CUDA_SUCCESS;
}

void PinnedResults::close() {
  // Memory that the driver does not let go of stays mapped.
  const bool let_go = !pinned_ || driver().cuMemHostUnregister(host_) == CUDA_SUCCESS;
  if (host_ != nullptr && let_go) ::munmap(host_, bytes_);
  *this = {};
}

void PinnedResults::context_gone() {
  if (host_ != nullptr) ::munmap(host_, bytes_);
  *this = {};
}

}  // namespace switchyard::shim
