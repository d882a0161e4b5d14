#include "mps_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <utility>

#include "children.h"
#include "driver.h"
#include "kernels_ptx.h"
#include "spawned.h"

namespace conformance {
namespace {

constexpr int kSharedFd = 3;
constexpr std::size_t kPage = 4096;
constexpr int kAnswersWithinMs = 60'000;  // the end of a server is felt after seconds
constexpr std::uint32_t kWords = 1024;

// meet(u64 mine, u64 theirs, u32 rounds, u32 first, u32 patience, u64 met). Its one thread writes
// the number of the round, and waits until the other side has written it, too. It gives up after
// `first` looks in the first round, and after `patience` in a later one. *met: rounds that it did.
constexpr char kMeetPtx[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry meet(.param .u64 mine, .param .u64 theirs, .param .u32 rounds, .param .u32 first,
                     .param .u32 patience, .param .u64 met)
{
    .reg .pred %p<4>;
    .reg .u32 %r<8>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [mine];
    ld.param.u64 %rd2, [theirs];
    ld.param.u32 %r1, [rounds];
    ld.param.u32 %r2, [first];
    ld.param.u64 %rd3, [met];
    mov.u32 %r3, 0;
round:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra done;
    add.u32 %r4, %r3, 1;
    st.volatile.global.u32 [%rd1], %r4;
    membar.sys;
look:
    ld.volatile.global.u32 %r5, [%rd2];
    setp.ge.u32 %p2, %r5, %r4;
    @%p2 bra both;
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p3, %r2, 0;
    @%p3 bra look;
    bra done;
both:
    mov.u32 %r3, %r4;
    ld.param.u32 %r2, [patience];
    bra round;
done:
    st.volatile.global.u32 [%rd3], %r3;
    ret;
}
)";

class Child {
 public:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "init") return error_name(CU(cuInit)(0));
    if (command == "sees") return sees();
    if (command == "begin") return error_name(begin());
    if (command == "work") return work();
    if (command == "take") {
      std::size_t mib = 0;
      CUdeviceptr more = 0;
      words >> mib;
      return error_name(CU(cuMemAlloc)(&more, mib * kMiB));
    }
    if (command == "fault") return error_name(fault());
    return command == "meet" ? meet(words) : "unknown command";
  }

 private:
  static std::string sees() {
    constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);  // newer than CUDA 12.0
    int count = 0, under = -1;
    CUuuid uuid{};
    CUresult result = CU(cuDeviceGetCount)(&count);
    if (result == CUDA_SUCCESS) result = CU(cuDeviceGetUuid)(&uuid, 0);
    if (result == CUDA_SUCCESS) result = CU(cuDeviceGetAttribute)(&under, kMpsEnabled, 0);
    std::ostringstream said;
    said << error_name(result) << ' ' << count << ' ' << uuid_text(uuid) << ' ' << under;
    return said.str();
  }

  CUresult begin() {
    CUcontext context = nullptr;
    CUresult result = CU(cuDevicePrimaryCtxRetain)(&context, 0);
    if (result == CUDA_SUCCESS) result = CU(cuCtxSetCurrent)(context);
    if (result == CUDA_SUCCESS) result = CU(cuModuleLoadData)(&kernels_, kKernelsPtx);
    if (result == CUDA_SUCCESS) result = CU(cuModuleGetFunction)(&fill_, kernels_, "fill");
    if (result == CUDA_SUCCESS) result = CU(cuMemAlloc)(&memory_, 4 * kWords);
    return result;
  }

  static CUresult launch(CUfunction function, unsigned threads, void** arguments) {
    return CU(cuLaunchKernel)(function, 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr);
  }

  std::string work() {
    std::uint32_t word = ++round_;
    std::uint64_t count = kWords;
    std::vector<std::uint32_t> words(kWords);
    void* arguments[] = {&memory_, &word, &count};
    CUresult result = launch(fill_, 256, arguments);
    if (result == CUDA_SUCCESS) result = CU(cuMemcpyDtoH)(words.data(), memory_, 4 * kWords);
    if (result != CUDA_SUCCESS) return error_name(result);
    return words == std::vector<std::uint32_t>(kWords, word) ? error_name(result) : "wrong words";
  }

  CUresult fault() {
    CUdeviceptr nowhere = 0;  // addresses without memory
    if (const CUresult refused = CU(cuMemAddressReserve)(&nowhere, 2 * kMiB, 0, 0, 0)) {
      return refused;
    }
    std::uint32_t word = 1;
    std::uint64_t count = kWords;
    void* arguments[] = {&nowhere, &word, &count};
    const CUresult result = launch(fill_, 256, arguments);
    return result == CUDA_SUCCESS ? CU(cuCtxSynchronize)() : result;
  }

  std::string meet(std::istringstream& words) {
    int side = 0;
    std::uint32_t rounds = 0, first = 0, patience = 0, met = 0;
    words >> side >> rounds >> first >> patience;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr place = 0;
    void* shared = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, kSharedFd, 0);
    CUresult result = CU(cuMemHostRegister)(shared, kPage, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS) result = CU(cuMemHostGetDevicePointer)(&place, shared, 0);
    if (result == CUDA_SUCCESS) result = CU(cuModuleLoadData)(&module, kMeetPtx);
    if (result == CUDA_SUCCESS) result = CU(cuModuleGetFunction)(&function, module, "meet");
    if (result != CUDA_SUCCESS) return error_name(result);
    CUdeviceptr mine = place + 256 * side, theirs = place + 256 * (1 - side);
    void* arguments[] = {&mine, &theirs, &rounds, &first, &patience, &memory_};
    std::cout << "there" << std::endl;  // what comes next waits for nothing of this process
    std::string go;
    std::getline(std::cin, go);
    result = launch(function, 1, arguments);
    if (result == CUDA_SUCCESS) result = CU(cuMemcpyDtoH)(&met, memory_, sizeof met);
    return error_name(result) + " " + std::to_string(met);
  }

  CUmodule kernels_ = nullptr;
  CUfunction fill_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::uint32_t round_ = 0;
};

}  // namespace

int mps_child() {
  Child child;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << child.obey(line) << std::endl;
  }
  return 0;
}

int meeting_place() {
  const int fd = memfd_create("conformance", MFD_CLOEXEC);
  return fd >= 0 && ftruncate(fd, kPage) == 0 ? fd : -1;
}

Client::Client(const std::vector<std::string>& more, int shared) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
  Spawned what = own_child("mps");
  what.more = more;
  what.descriptors = {{in[0], 0}, {out[1], 1}};
  if (shared >= 0) what.descriptors.emplace_back(shared, kSharedFd);
  pid_ = spawn(std::move(what));
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

void Client::send(const std::string& line) const {
  const std::string text = line + "\n";
  if (::write(to_, text.data(), text.size()) < 0) perror("a client's standard input");
}

std::string Client::receive() {
  std::string line;
  char byte = 0;
  for (pollfd wait{from_, POLLIN, 0}; ::poll(&wait, 1, kAnswersWithinMs) == 1;) {
    if (::read(from_, &byte, 1) != 1) break;
    if (byte == '\n') return line;
    line += byte;
  }
  return "no answer";
}

std::string Client::begin() {
  const std::string said = ask("init");
  return said == "CUDA_SUCCESS" ? ask("begin") : said;
}

void Client::kill() {
  ::kill(pid_, SIGKILL);
  end();
}

int Client::end() {
  if (pid_ <= 0) return 0;
  close(to_);
  int status = 0;
  for (int looks = 0; waitpid(pid_, &status, WNOHANG) == 0; ++looks) {
    if (looks == 4000) ::kill(pid_, SIGKILL);
    usleep(5'000);
  }
  close(from_);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace conformance
