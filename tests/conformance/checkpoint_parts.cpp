// What a checkpoint does with the parts of a process: memory that a descriptor keeps, pinned host
// memory, contexts on two GPUs. Each step's time is printed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "checkpointed.h"
#include "children.h"
#include "driver.h"

namespace conformance {
namespace {

// How much memory the parts have. A real GPU's figures need more than the default.
std::size_t part_bytes() {
  const char* mib = getenv("CONFORMANCE_MIB");
  return (mib ? strtoull(mib, nullptr, 10) : 16) * kMiB;
}

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// Does a step, prints how long it took, and how the driver refused it.
template <class Body>
CUresult step(const char* name, Body body) {
  const double begun = now_ms();
  const CUresult result = body();
  printf("  %s %.1f ms", name, now_ms() - begun);
  if (result != CUDA_SUCCESS) printf(" REFUSED: %s\n", error_name(result).c_str());
  fflush(stdout);
  return result;
}

// Off the GPU and onto another. A step that is refused on the way out is undone. A refusal on the
// other GPU brings the contexts back to the old one.
int change_gpu(const std::vector<CUcheckpointGpuPair>& pairs) {
  return elsewhere([&] {
    if (step("lock", [] { return lock(); }) != CUDA_SUCCESS) return kRefused;
    if (step("checkpoint", [] { return take(); }) != CUDA_SUCCESS) {
      CHECK(41, unlock() == CUDA_SUCCESS);
      return kRefused;
    }
    if (step("restore", [&] { return restore(pairs); }) != CUDA_SUCCESS) {
      CHECK(42, restore() == CUDA_SUCCESS && unlock() == CUDA_SUCCESS);
      return kRefused;
    }
    CHECK(43, step("unlock", [] { return unlock(); }) == CUDA_SUCCESS);
    return 0;
  });
}

// --- memory that only a descriptor keeps ---

// A message of one byte with room for a descriptor.
struct Envelope {
  char word = 0;
  iovec data{&word, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};

  Envelope() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;
};

// Sends a descriptor and closes it, and receives one. -1: none came.
void send_fd(int socket, int fd) {
  Envelope envelope;
  cmsghdr* header = CMSG_FIRSTHDR(&envelope.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket, &envelope.message, 0) != 1) perror("sendmsg");
  close(fd);
}

int receive_fd(int socket) {
  Envelope envelope;
  int fd = -1;
  if (recvmsg(socket, &envelope.message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&envelope.message);
  if (header && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

// Keeps a descriptor while the process is away: in a process without CUDA, or in itself.
class Keeper {
 public:
  // pre: CUDA is not initialised yet. `own`: the process keeps it itself.
  explicit Keeper(bool own) {
    int ends[2];
    if (own || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      for (int fd; (fd = receive_fd(ends[1])) >= 0;) {
        char word = 0;
        if (::read(ends[1], &word, 1) != 1) break;
        send_fd(ends[1], fd);
      }
      _exit(0);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Keeper() {
    if (socket_ >= 0) close(socket_);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  void keep(int fd) {
    if (socket_ < 0) {
      fd_ = fd;
    } else {
      send_fd(socket_, fd);
    }
  }
  int give() {
    if (socket_ < 0) return fd_;
    return write(socket_, "", 1) == 1 ? receive_fd(socket_) : -1;
  }

 private:
  int socket_ = -1;
  int fd_ = -1;
};

// Memory of one GPU at an address, with access for device 0.
struct Kept {
  CUdeviceptr at = 0;
  std::size_t bytes = part_bytes();

  CUresult map(CUmemGenericAllocationHandle handle) const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result = CU(cuMemMap)(at, bytes, 0, handle, 0);
    return result == CUDA_SUCCESS ? CU(cuMemSetAccess)(at, bytes, &access, 1) : result;
  }
  CUresult let_go(CUmemGenericAllocationHandle handle) const {
    const CUresult result = CU(cuMemUnmap)(at, bytes);
    return result == CUDA_SUCCESS ? CU(cuMemRelease)(handle) : result;
  }
  // A descriptor of new memory of `gpu`, which nothing else keeps.
  int make(int gpu, int& fd) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = gpu;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    CHECK(21, CU(cuMemAddressReserve)(&at, bytes, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(22, CU(cuMemCreate)(&handle, bytes, &prop, 0) == CUDA_SUCCESS);
    CHECK(23, map(handle) == CUDA_SUCCESS);
    CHECK(24, fill(0) == CUDA_SUCCESS);
    CHECK(25, CU(cuMemExportToShareableHandle)(
                  &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHECK(26, let_go(handle) == CUDA_SUCCESS);
    return 0;
  }
  CUresult fill(unsigned turn) const {
    const std::size_t half = bytes / 2;
    CU(cuMemsetD32)(at, 1000 + turn, half / 4);
    CU(cuMemsetD32)(at + half, 2000 + turn, half / 4);
    return CU(cuCtxSynchronize)();
  }
  bool holds(unsigned turn) const {
    std::vector<std::uint32_t> words(bytes / 4);
    if (CU(cuMemcpyDtoH)(words.data(), at, bytes) != CUDA_SUCCESS) return false;
    const auto middle = words.begin() + static_cast<std::ptrdiff_t>(words.size() / 2);
    const auto is = [](std::uint32_t wanted) {
      return [wanted](std::uint32_t word) { return word == wanted; };
    };
    return std::all_of(words.begin(), middle, is(1000 + turn)) &&
           std::all_of(middle, words.end(), is(2000 + turn));
  }
};

// The kept memory to memory of the device where the process is now.
int copy_of(const Kept& kept) {
  CUdeviceptr copy = 0;
  CHECK(31, CU(cuMemAlloc)(&copy, kept.bytes) == CUDA_SUCCESS);
  const CUresult copied = step("copy to the process's GPU", [&] {
    CU(cuMemcpyDtoDAsync)(copy, kept.at, kept.bytes, nullptr);
    return CU(cuCtxSynchronize)();
  });
  CHECK(32, copied == CUDA_SUCCESS);
  CHECK(33, CU(cuMemFree)(copy) == CUDA_SUCCESS);
  return 0;
}

// Two moves of a process whose memory of `gpu` is kept by a descriptor alone, each time.
int keep_memory(int gpu, bool own, std::vector<CUcheckpointGpuPair> pairs = {}) {
  Keeper keeper(own);
  Process process;
  Kept kept;
  int fd = -1;
  if (const int wrong = process.begin()) return wrong;
  if (const int wrong = kept.make(gpu, fd)) return wrong;
  if (pairs.empty()) pairs = exchanged_gpus();
  for (unsigned turn = 0; turn < 2; ++turn) {
    keeper.keep(fd);
    printf("%zu MiB of GPU %d, kept by %s:", kept.bytes / kMiB, gpu, own ? "itself" : "another");
    if (const int wrong = change_gpu(pairs)) return wrong;
    fd = keeper.give();
    CHECK(11, fd >= 0);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult imported = step("import", [&] {
      void* from = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
      return CU(cuMemImportFromShareableHandle)(&handle, from,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    });
    if (imported != CUDA_SUCCESS) return kRefused;
    CUmemAllocationProp prop{};
    CHECK(12, CU(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) == CUDA_SUCCESS);
    if (step("map", [&] { return kept.map(handle); }) != CUDA_SUCCESS) return kRefused;
    CHECK(13, kept.holds(turn));
    if (const int wrong = copy_of(kept)) return wrong;
    printf("  it is of device %d now\n", prop.location.id);
    CHECK(14, kept.fill(turn + 1) == CUDA_SUCCESS);
    CHECK(15, kept.let_go(handle) == CUDA_SUCCESS);
  }
  close(fd);
  return process.check();
}

// The same in a process that sees one GPU, its own: the pairs come from the test.
int keep_unseen_memory() {
  std::vector<CUcheckpointGpuPair> pairs(64);
  const ssize_t got = ::read(0, pairs.data(), pairs.size() * sizeof(CUcheckpointGpuPair));
  CHECK(1, got > 0);
  pairs.resize(static_cast<std::size_t>(got) / sizeof(CUcheckpointGpuPair));
  CHECK(2, setenv("CUDA_VISIBLE_DEVICES", "0", 1) == 0);
  return keep_memory(0, false, pairs);
}

// --- what each part costs ---

constexpr std::size_t kSlab = 256 * kMiB;

// As the library's pool pins it: slabs with huge pages, for all contexts.
class Pinned {
 public:
  int begin() {
    begin_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(51, begin_ != MAP_FAILED);
    madvise(begin_, bytes_, MADV_HUGEPAGE);
    memset(begin_, 1, bytes_);
    return 0;
  }
  CUresult pin() const {
    return each([](char* slab, std::size_t bytes) {
      return CU(cuMemHostRegister)(slab, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    });
  }
  CUresult unpin() const {
    return each([](char* slab, std::size_t) { return CU(cuMemHostUnregister)(slab); });
  }
  // To memory of the device. `pins`: each slab before it, while the copies of others run.
  CUresult copy(CUdeviceptr to, bool pins) const {
    const CUresult queued = each([&](char* slab, std::size_t bytes) {
      if (pins) CU(cuMemHostRegister)(slab, bytes, CU_MEMHOSTREGISTER_PORTABLE);
      return CU(cuMemcpyHtoDAsync)(to, slab, bytes, nullptr);
    });
    return queued == CUDA_SUCCESS ? CU(cuCtxSynchronize)() : queued;
  }

 private:
  template <class Body>
  CUresult each(Body body) const {
    for (std::size_t at = 0; at < bytes_; at += kSlab) {
      const CUresult result = body(begin_ + at, std::min(kSlab, bytes_ - at));
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }
  char* begin_ = nullptr;
  std::size_t bytes_ = part_bytes();
};

struct Parts {
  bool memory = false;  // of the GPU
  bool both = false;    // a context on the other GPU, too
  bool pinned = false;  // host memory
  bool apart = false;   // that is not pinned while the process moves
};

int move_parts(const Parts& parts) {
  Process process;
  Pinned pinned;
  if (const int wrong = process.begin()) return wrong;
  CUcontext other = nullptr;
  if (parts.both) CHECK(1, CU(cuDevicePrimaryCtxRetain)(&other, 1) == CUDA_SUCCESS);
  if (parts.pinned) {
    if (const int wrong = pinned.begin()) return wrong;
  }
  CUdeviceptr memory = 0;
  if (parts.memory) CHECK(8, CU(cuMemAlloc)(&memory, part_bytes()) == CUDA_SUCCESS);
  const std::vector<CUcheckpointGpuPair> pairs = exchanged_gpus();
  const auto pin = [&] { return step("pin", [&] { return pinned.pin(); }); };
  if (parts.pinned) CHECK(2, pin() == CUDA_SUCCESS);
  printf("\n");
  for (int turn = 0; turn < 2; ++turn) {
    printf("%zu MiB pinned, %zu MiB of the GPU, %s%s:", parts.pinned ? part_bytes() / kMiB : 0,
           parts.memory ? part_bytes() / kMiB : 0,
           parts.both ? "contexts on two GPUs" : "a context", parts.apart ? ", unpinned" : "");
    const double begun = now_ms();
    if (parts.apart) CHECK(3, step("unpin", [&] { return pinned.unpin(); }) == CUDA_SUCCESS);
    if (const int wrong = change_gpu(pairs)) return wrong;
    // First one after the other, then both at once.
    const bool pins = parts.apart && turn == 1;
    if (parts.apart && !pins) CHECK(4, pin() == CUDA_SUCCESS);
    if (parts.pinned) {
      const char* name = pins ? "pin and copy" : "copy";
      CUdeviceptr to = 0;  // not there while the process moves
      CHECK(5, CU(cuMemAlloc)(&to, kSlab) == CUDA_SUCCESS);
      CHECK(6, step(name, [&] { return pinned.copy(to, pins); }) == CUDA_SUCCESS);
      CHECK(7, CU(cuMemFree)(to) == CUDA_SUCCESS);
    }
    printf("  in all %.1f ms\n", now_ms() - begun);
  }
  return process.check();
}

}  // namespace

int checkpoint_part_child(const std::string& name) {
  if (name == "checkpoint-kept-there") return keep_memory(1, false);
  if (name == "checkpoint-kept-here") return keep_memory(0, false);
  if (name == "checkpoint-kept-unseen") return keep_unseen_memory();
  if (name == "checkpoint-kept-there-by-itself") return keep_memory(1, true);
  if (name == "checkpoint-kept-here-by-itself") return keep_memory(0, true);
  if (name == "checkpoint-plain") return move_parts({});
  if (name == "checkpoint-memory") return move_parts({.memory = true});
  if (name == "checkpoint-both") return move_parts({.both = true});
  if (name == "checkpoint-pinned") return move_parts({.pinned = true});
  if (name == "checkpoint-pinned-both") return move_parts({.both = true, .pinned = true});
  if (name == "checkpoint-unpinned") return move_parts({.pinned = true, .apart = true});
  return 126;
}

}  // namespace conformance
