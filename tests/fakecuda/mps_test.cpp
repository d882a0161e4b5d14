// The simulated MPS: clients' work runs at once in the server's groups, and faults reach them all.
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "loaded.h"
#include "report.h"

namespace {

using namespace fakecuda_tests;

constexpr unsigned kKernelUs = 100;

std::string driver_folder() {
  const std::string all = getenv("LD_LIBRARY_PATH");
  return all.substr(0, all.find(':'));
}

// A child that works until it is told to end, or that does one thing.
class Process {
 public:
  explicit Process(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  ~Process() { kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // Its exit status.
  int end() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

// Launches kernels until a call fails: the exit status is that error.
int saturate() {
  const CUfunction busy = start_gpu();
  CUstream stream = nullptr;
  if (!busy || CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return 1;
  unsigned us = kKernelUs;
  void* arguments[] = {&us};
  for (;;) {
    // It sleeps while the stream's queue is full.
    const CUresult result =
        CU(cuLaunchKernel)(busy, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
    if (result != CUDA_SUCCESS) return result & 0xff;
  }
}

constexpr int status_of(CUresult result) { return static_cast<int>(result) & 0xff; }

class Mps : public Simulation {
 protected:
  void SetUp() override {
    Simulation::SetUp();
    char name[] = "/tmp/fakecuda-mps-XXXXXX";
    pipe_ = mkdtemp(name);
    setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_.c_str(), 1);
    ASSERT_EQ(control("", "-d"), "");
  }
  void TearDown() override {
    control("quit");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    std::filesystem::remove_all(pipe_);
  }
  // What the program says to a command.
  static std::string control(const std::string& command, const std::string& option = "") {
    const std::string line =
        "echo '" + command + "' | " + driver_folder() + "/nvidia-cuda-mps-control " + option;
    FILE* out = popen(line.c_str(), "r");
    std::string said;
    char part[256];
    while (fgets(part, sizeof part, out)) said += part;
    pclose(out);
    return said;
  }
  // A process of its own, that is no client.
  static int outside() {
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    return saturate();
  }
  static pid_t server() { return atoi(control("get_server_list").c_str()); }
  static bool works(pid_t pid) {
    const std::uint64_t before = group_of(pid).operations;
    return eventually([&] { return group_of(pid).operations > before + 20; });
  }

  std::string pipe_;
};

TEST_F(Mps, ClientsRunInTheGroupsOfTheirServer) {
  EXPECT_EQ(control("get_server_list"), "");
  Process a(saturate), b(saturate);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  ASSERT_TRUE(works(server()));
  ASSERT_EQ(compute_groups().size(), 1u);
  EXPECT_TRUE(eventually([&] {
    const std::string clients = "\n" + control("get_client_list " + std::to_string(server()));
    return clients.find("\n" + std::to_string(a.pid()) + "\n") != std::string::npos &&
           clients.find("\n" + std::to_string(b.pid()) + "\n") != std::string::npos;
  }));
}

TEST_F(Mps, WorkOfClientsOverlaps) {
  Process a(saturate), b(saturate);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  const pid_t pid = server();
  FakecudaGroup before = group_of(pid);
  EXPECT_TRUE(eventually([&] {
    const FakecudaGroup now = group_of(pid);
    const double busy_us = static_cast<double>(now.busy_ns - before.busy_ns) / 1e3;
    if (busy_us < 20'000) return false;
    const double done_us = static_cast<double>(now.operations - before.operations) * kKernelUs;
    before = now;
    return done_us / busy_us > 1.5;
  }));
}

TEST_F(Mps, TheServerTakesTurnsWithAProcessOutside) {
  Process a(saturate), b(saturate), other(outside);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  const pid_t pid = server();
  ASSERT_TRUE(works(pid) && works(other.pid()));
  const FakecudaGroup mine = group_of(pid), theirs = group_of(other.pid());
  const auto busy = [](const FakecudaGroup& now, const FakecudaGroup& then) {
    return static_cast<double>(now.busy_ns - then.busy_ns);
  };
  ASSERT_TRUE(eventually(
      [&] { return busy(group_of(pid), mine) + busy(group_of(other.pid()), theirs) > 600e6; }));
  const double part = busy(group_of(pid), mine);
  EXPECT_NEAR(part / (part + busy(group_of(other.pid()), theirs)), 0.5, 0.1);
}

TEST_F(Mps, AFaultReachesAllClientsAndTheServerGoesOn) {
  Process other(saturate);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  const pid_t pid = server();
  ASSERT_TRUE(works(pid));
  Process faulty([] {
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const bool mapped = start_gpu() &&
                        CU(cuMemAddressReserve)(&at, 2 << 20, 0, 0, 0) == CUDA_SUCCESS &&
                        CU(cuMemCreate)(&handle, 2 << 20, &prop, 0) == CUDA_SUCCESS &&
                        CU(cuMemMap)(at, 2 << 20, 0, handle, 0) == CUDA_SUCCESS;
    return mapped ? status_of(CU(cuMemsetD8)(at, 1, 1)) : 1;  // nobody has access to it
  });
  EXPECT_EQ(faulty.end(), status_of(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_EQ(other.end(), status_of(CUDA_ERROR_ILLEGAL_ADDRESS));
  Process next(saturate);
  EXPECT_TRUE(works(pid));
  EXPECT_EQ(server(), pid);
}

TEST_F(Mps, TheEndOfTheServerIsThatOfItsClients) {
  Process other(saturate), stands(outside);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  const pid_t pid = server();
  ASSERT_TRUE(works(pid) && works(stands.pid()));
  kill(pid, SIGKILL);
  EXPECT_EQ(other.end(), status_of(CUDA_ERROR_MPS_RPC_FAILURE));
  EXPECT_TRUE(works(stands.pid()));
  Process next(saturate);
  ASSERT_TRUE(eventually([&] { return server() > 0 && server() != pid; }));
  EXPECT_TRUE(works(server()));
}

TEST_F(Mps, ATerminatedClientFailsAlone) {
  Process one(saturate), other(saturate);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  const std::string pid = std::to_string(server());
  ASSERT_TRUE(eventually([&] {
    return control("get_client_list " + pid).find(std::to_string(one.pid())) != std::string::npos;
  }));
  EXPECT_EQ(control("terminate_client " + pid + " " + std::to_string(one.pid())), "");
  EXPECT_EQ(one.end(), status_of(CUDA_ERROR_MPS_CLIENT_TERMINATED));
  EXPECT_TRUE(works(server()));
}

TEST_F(Mps, AKilledClientKeepsNobodyWaiting) {
  Process one(saturate), other(saturate), stands(outside);
  ASSERT_TRUE(eventually([] { return server() > 0; }));
  ASSERT_TRUE(works(server()) && works(stands.pid()));
  one.kill();
  EXPECT_TRUE(works(server()) && works(stands.pid()));
  other.kill();
  EXPECT_TRUE(works(stands.pid()));
}

TEST_F(Mps, QuitEndsServerAndDaemon) {
  {
    Process one(saturate);
    ASSERT_TRUE(eventually([] { return server() > 0; }));
    ASSERT_TRUE(works(server()));
  }
  const pid_t pid = server();
  EXPECT_EQ(control("quit"), "");
  EXPECT_TRUE(eventually([&] { return kill(pid, 0) != 0; }));
  EXPECT_EQ(compute_groups().size(), 0u);
  // Then a process works by itself.
  Process alone(saturate);
  EXPECT_TRUE(eventually([&] { return group_of(alone.pid()).operations > 20; }));
}

}  // namespace
