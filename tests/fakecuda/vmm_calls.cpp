// Virtual memory management: addresses and memory apart, by real mmap. Work on what is not mapped,
// or is mapped without access, is an error of the context; the CPU faults there.
//
// Threading: one lock for reservations, handles and mappings.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apart.h"
#include "memory.h"

using namespace fakecuda;

namespace {

struct Handle {
  BackingRef backing;  // null: memory of the host
  int host_fd = -1;
  std::size_t bytes = 0;
  CUmemAllocationProp prop{};
  bool imported = false;    // it came by a descriptor
  bool unseen = false;      // of a GPU that the process does not see
  unsigned references = 1;  // handles given out; mappings keep the memory alive on their own
};

struct Mapping {
  std::size_t bytes = 0;
  std::shared_ptr<Handle> handle;
  Access access = access_for_all(PROT_NONE);
  int host = PROT_NONE;  // of the CPU
};

struct Vmm {
  std::mutex lock;
  std::map<CUdeviceptr, std::size_t> reserved;
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Handle>> handles;
  std::map<CUdeviceptr, Mapping> mapped;
  CUmemGenericAllocationHandle next = 0x7000'0001;
};

Vmm& vmm() {
  static Vmm* only = new Vmm;
  return *only;
}

bool on_host(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUmemGenericAllocationHandle add_handle(std::shared_ptr<Handle> handle) {
  const CUmemGenericAllocationHandle name = vmm().next++;
  vmm().handles[name] = std::move(handle);
  return name;
}

// The reservation around [at, at + bytes); the map's end when there is none.
std::map<CUdeviceptr, std::size_t>::iterator reservation_of(CUdeviceptr at, std::size_t bytes) {
  auto& reserved = vmm().reserved;
  auto found = reserved.upper_bound(at);
  if (found == reserved.begin()) return reserved.end();
  --found;
  return at + bytes <= found->first + found->second ? found : reserved.end();
}

bool meets_mapping(CUdeviceptr at, std::size_t bytes) {
  const auto found = vmm().mapped.lower_bound(at + bytes);
  if (found == vmm().mapped.begin()) return false;
  const auto before = std::prev(found);
  return before->first + before->second.bytes > at;
}

// The mappings that make up [at, at + bytes) exactly; empty when they don't.
std::vector<std::map<CUdeviceptr, Mapping>::iterator> exactly(CUdeviceptr at, std::size_t bytes) {
  std::vector<std::map<CUdeviceptr, Mapping>::iterator> list;
  CUdeviceptr reached = at;
  for (auto it = vmm().mapped.find(at); it != vmm().mapped.end() && reached < at + bytes; ++it) {
    if (it->first != reached) break;
    list.push_back(it);
    reached += it->second.bytes;
  }
  if (reached != at + bytes) list.clear();
  return list;
}

int protection_of(unsigned access) {
  if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return PROT_READ | PROT_WRITE;
  return access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

unsigned access_of(int protection) {
  if (protection == (PROT_READ | PROT_WRITE)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return protection == PROT_READ ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// The word for the access of one location; null: there is no such GPU.
int* access_at(Mapping& mapping, const CUmemLocation& location) {
  if (on_host(location.type)) return &mapping.host;
  return valid(location.id) ? &mapping.access[static_cast<std::size_t>(location.id)] : nullptr;
}

// Memory of the host and of its own GPU is in reach of each. That of imported memory is not noted.
bool may_reach(const CUmemLocation& from, const Handle& handle) {
  const CUmemLocation& at = handle.prop.location;
  const bool both = !on_host(from.type) && !on_host(at.type) && !handle.imported;
  return !both || from.id == at.id || reaches(from.id, at.id);
}

}  // namespace

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment,
                             CUdeviceptr, unsigned long long flags) {
  FAKE_NEED_DRIVER();
  if (!out || bytes == 0 || bytes % kGranularity || flags) return CUDA_ERROR_INVALID_VALUE;
  if (alignment & (alignment - 1)) return CUDA_ERROR_INVALID_VALUE;
  void* at = reserve_addresses(bytes, std::max<std::size_t>(alignment, kGranularity));
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard guard(vmm().lock);
  *out = reinterpret_cast<CUdeviceptr>(at);
  vmm().reserved[*out] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  const auto found = vmm().reserved.find(at);
  if (found == vmm().reserved.end() || found->second != bytes || meets_mapping(at, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  vmm().reserved.erase(found);
  unreserve_addresses(reinterpret_cast<void*>(at), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t bytes,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  FAKE_NEED_DRIVER();
  if (!out || !prop || bytes == 0 || flags) return CUDA_ERROR_INVALID_VALUE;
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (bytes % kGranularity) return CUDA_ERROR_INVALID_VALUE;
  auto handle = std::make_shared<Handle>();
  handle->prop = *prop;
  handle->bytes = bytes;
  if (on_host(prop->location.type)) {
    handle->host_fd = apart(memfd_create("fakecuda-host", MFD_CLOEXEC));
    if (handle->host_fd < 0 || ftruncate(handle->host_fd, static_cast<off_t>(bytes)) != 0) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  } else {
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.id < 0 || prop->location.id >= gpu_count()) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    const bool exportable =
        (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    handle->backing = make_backing(prop->location.id, bytes, exportable);
    if (!handle->backing) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::lock_guard guard(vmm().lock);
  *out = add_handle(std::move(handle));
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle name) {
  FAKE_NEED_DRIVER();
  std::shared_ptr<Handle> last;  // its memory is given back outside the lock
  std::lock_guard guard(vmm().lock);
  const auto found = vmm().handles.find(name);
  if (found == vmm().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second->references > 0) return CUDA_SUCCESS;
  last = found->second;
  vmm().handles.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle name, unsigned long long flags) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  const auto found = vmm().handles.find(name);
  if (found == vmm().handles.end() || flags || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Handle>& handle = found->second;
  const auto around = reservation_of(at, bytes);
  if (at % kGranularity || offset % kGranularity || bytes % kGranularity ||
      offset + bytes > handle->bytes || around == vmm().reserved.end() ||
      meets_mapping(at, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As measured: a handle is mapped whole or not at all.
  if (offset != 0 || bytes != handle->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  void* to = reinterpret_cast<void*>(at);
  if (handle->backing) {
    if (!map_backing(handle->backing, to, 0, bytes, PROT_NONE)) return CUDA_ERROR_OUT_OF_MEMORY;
  } else if (mmap(to, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->host_fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vmm().mapped[at] = {.bytes = bytes, .handle = handle};
  Range range;
  range.start = at;
  range.bytes = bytes;
  range.kind = RangeKind::kMapped;
  range.gpu = handle->backing ? handle->backing->gpu : 0;
  range.reserved = around->first;
  range.reserved_bytes = around->second;
  range.prop = handle->prop;
  range.access = access_for_all(PROT_NONE);
  Ranges::all().add(range);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  FAKE_NEED_DRIVER();
  std::vector<Mapping> gone;  // their memory may be given back: outside the lock
  std::lock_guard guard(vmm().lock);
  const auto list = exactly(at, bytes);
  if (list.empty()) {
    // As measured: where nothing is mapped, there is nothing to complain of.
    const bool empty = reservation_of(at, bytes) != vmm().reserved.end();
    return empty && !meets_mapping(at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& it : list) {
    Range removed;
    Ranges::all().remove(it->first, &removed);
    gone.push_back(it->second);
    vmm().mapped.erase(it);
  }
  make_untouchable(reinterpret_cast<void*>(at), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* descriptors,
                        std::size_t count) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  if (!descriptors || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto list = exactly(at, bytes);
  if (list.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (!on_host(descriptors[i].location.type) && !valid(descriptors[i].location.id)) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  for (const auto& it : list) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!may_reach(descriptors[i].location, *it->second.handle)) return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  // As measured: it is imported and mapped, but nobody is given access.
  for (const auto& it : list) {
    if (it->second.handle->unseen) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (const auto& it : list) {
    Mapping& mapping = it->second;
    for (std::size_t i = 0; i < count; ++i) {
      *access_at(mapping, descriptors[i].location) = protection_of(descriptors[i].flags);
    }
    // The CPU does the work of all GPUs.
    int any = mapping.host;
    for (const int each : mapping.access) any |= each;
    mprotect(reinterpret_cast<void*>(it->first), mapping.bytes, any);
    Ranges::all().set_access(it->first, mapping.bytes, mapping.access);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr at) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (!Ranges::all().find(at, &range) || !range.on_device()) return CUDA_ERROR_INVALID_VALUE;
  const auto found = vmm().mapped.find(range.start);
  *flags = 0;  // not of this kind
  if (found == vmm().mapped.end()) return CUDA_SUCCESS;
  const int* access = access_at(found->second, *location);
  if (!access) return CUDA_ERROR_INVALID_DEVICE;
  *flags = access_of(*access);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(std::size_t* out, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  FAKE_NEED_DRIVER();
  if (!out || !prop) return CUDA_ERROR_INVALID_VALUE;
  *out = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle name) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  const auto found = vmm().handles.find(name);
  if (!out || found == vmm().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *out = found->second->prop;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* pointer) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  const auto at = reinterpret_cast<CUdeviceptr>(pointer);
  auto found = vmm().mapped.upper_bound(at);
  if (!out || found == vmm().mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (at >= found->first + found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Handle>& handle = found->second.handle;
  for (auto& [name, known] : vmm().handles) {
    if (known != handle) continue;
    ++known->references;
    *out = name;
    return CUDA_SUCCESS;
  }
  handle->references = 1;  // released by its maker, and alive by this mapping
  *out = add_handle(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle name,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(vmm().lock);
  const auto found = vmm().handles.find(name);
  if (!out || flags || found == vmm().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  // An imported one is exported by nobody but its maker, as on a real GPU.
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !found->second->backing ||
      !found->second->backing->owns_fd || found->second->imported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Backing& backing = *found->second->backing;
  const int copy = driver()->state->export_memory(backing.fd, backing.gpu, backing.bytes);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}

// Imported memory is charged to the process that made it, then to nobody.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                        CUmemAllocationHandleType type) {
  FAKE_NEED_DRIVER();
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  struct stat status {};
  if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (fstat(fd, &status) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto handle = std::make_shared<Handle>();
  handle->bytes = static_cast<std::size_t>(status.st_size);
  handle->imported = true;
  handle->backing = std::make_shared<Backing>();
  handle->backing->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  handle->backing->owns_fd = true;
  handle->backing->bytes = handle->bytes;
  const int device = driver()->state->device_of_exported(fd);
  handle->unseen = device < 0;
  handle->backing->gpu = std::max(device, 0);
  handle->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  handle->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  handle->prop.location.id = handle->backing->gpu;
  handle->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::lock_guard guard(vmm().lock);
  *out = add_handle(std::move(handle));
  return CUDA_SUCCESS;
}

}  // extern "C"
