#include "tests/shim/client/client_world.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "shim/driver.h"
#include "shim/gate/hold.h"
#include "shim/gate/numbers.h"
#include "shim/gate/view.h"
#include "shim/memory/account.h"
#include "shim/memory/stays.h"
#include "shim/nccl/communicators.h"
#include "shim/nccl/norms.h"
#include "shim/nvml/table.h"
#include "shim/reset.h"
#include "shim/slices/groups.h"
#include "shim/swap/mover.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/work_guard.h"

// The client's neighbours.
namespace switchyard::shim {

Driver g_driver;

using testing::g_neighbours;

void open_without_monitor() { ++g_neighbours.opened; }
Paused paused() { return {g_neighbours.paused, g_neighbours.paused ? 77U : 0U}; }
void follow_head() {}
void carry_pause(const abi::Page&, abi::Page&) { ++g_neighbours.pauses_carried; }

void view::make(int fd) {
  EXPECT_GE(fd, 0);
  EXPECT_TRUE(g_neighbours.frozen);
  ++g_neighbours.views;
}
bool view::follow(std::uint64_t) {
  ++g_neighbours.looks;
  return g_neighbours.follows;
}
void numbers::give_up_stale(std::uint64_t) {}

namespace account {
namespace {
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
}
Frozen::Frozen() : locked_(g_lock) { g_neighbours.frozen = true; }
void carry_over(unsigned index, std::uint64_t told_bytes, abi::Lane&) {
  if (index == 0) g_neighbours.told_bytes = told_bytes;
}
}  // namespace account

void memory::tell_stays() { ++g_neighbours.stays_told; }

void nccl::communicators::carry_over(abi::Page&) { ++g_neighbours.communicators_carried; }
void nccl::norms::carry_over(abi::Page&) { ++g_neighbours.norms_carried; }
bool nccl::norms::collect() { return false; }
void nccl::communicators::tell() { ++g_neighbours.communicators_told; }

void groups::apply_wanted() { ++g_neighbours.applied; }
void groups::restore_default() {
  g_neighbours.opened_at_restore = g_neighbours.opened.load();
  ++g_neighbours.restored;
}

void swap::mover::poke() { process().mover.wake(); }
void swap::mover::start_again() { ++g_neighbours.movers_tried; }
bool swap::admission::overrule(std::uint64_t) { return false; }
void swap::residency_page::carry_over(abi::Page&) { ++g_neighbours.residencies_carried; }
void swap::residency_page::moved_to_fresh_page() {}
void swap::residency_page::choose_swappable(unsigned gpus) {
  g_neighbours.chosen_swappable = static_cast<int>(gpus);
}

std::uint32_t nvml::list_gpus(std::uint8_t (*uuid)[16]) {
  for (unsigned i = 0; i < g_neighbours.nvml_gpus; ++i) std::memset(uuid[i], 0xB0, 16);
  return g_neighbours.nvml_gpus;
}

// What a forked child resets: one of each stage, in the order opposite to theirs.
namespace forgotten {
void note(char stage) { testing::g_forgotten += stage; }

namespace state {
void forget() {
  // The client's own two came before.
  note(page().head.magic == 0 && monitor_fds().socket < 0 && !monitor_fds().lost ? 's' : '?');
}
SWITCHYARD_RESET(kState, forget);
}  // namespace state
namespace connection {
void forget() { note(page().head.magic == 0 ? 'c' : '?'); }
SWITCHYARD_RESET(kConnection, forget);
}  // namespace connection
namespace first {
void forget() { note('p'); }
SWITCHYARD_RESET(kPage, forget);
}  // namespace first
}  // namespace forgotten

}  // namespace switchyard::shim

namespace switchyard::shim::testing {

Neighbours g_neighbours;
std::string g_forgotten;
std::atomic<int> g_gpus{2};

namespace {

CUresult count_gpus(int* count) {
  *count = g_gpus;
  return CUDA_SUCCESS;
}

CUresult get_gpu(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < g_gpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult get_uuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, 0xA0 + device, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}

// The second GPU is the MPS server's.
CUresult attribute(int* value, CUdevice_attribute which, CUdevice device) {
  *value = which == static_cast<CUdevice_attribute>(133) && device == 1 ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

ClientTest::ClientTest() {
  g_driver.cuDeviceGetCount = count_gpus;
  g_driver.cuDeviceGet = get_gpu;
  g_driver.cuDeviceGetUuid_v2 = get_uuid;
  g_driver.cuDeviceGetAttribute = attribute;
  char folder[] = "/tmp/switchyard-client-XXXXXX";
  folder_ = ::mkdtemp(folder);
  ::setenv("SWITCHYARD_SOCKET", (folder_ + "/monitor.sock").c_str(), 1);
  // The service thread of the test before goes on: this one's connection shall be its own.
  lose_monitor("the test begins");
  begin_process();
  map_page(-1);
  process().uses_cuda = 0;
  g_neighbours.frozen = false;
}

ClientTest::~ClientTest() {
  monitor_.reset();
  lose_monitor("the test ends");
  ::rmdir(folder_.c_str());
}

FakeMonitor& ClientTest::monitor(const FakeMonitor::Manner& manner) {
  monitor_.reset();
  monitor_ = std::make_unique<FakeMonitor>(folder_ + "/monitor.sock", manner);
  return *monitor_;
}

void ClientTest::join_it() {
  // The service thread of an earlier test may have been faster.
  ASSERT_TRUE(join());
  ASSERT_TRUE(eventually([&] { return current().has_client(); }));
}

void ClientTest::join_and_look() {
  monitor();
  join_it();
  ASSERT_TRUE(eventually([] { return g_neighbours.looks > 0; }));
}

namespace {
constexpr char kIsFresh[] = "SWITCHYARD_TEST_IS_FRESH";
}

bool is_fresh() { return ::getenv(kIsFresh) != nullptr; }

bool fresh() {
  if (is_fresh()) return true;
  const auto& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name();
  // By its own path: the kernel names a process after that.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const int status = in_child([&] {
    ::setenv(kIsFresh, "1", 1);
    ::execl(program.c_str(), "shim_client_test", filter.c_str(), nullptr);
    return 127;
  });
  EXPECT_EQ(status, 0) << "see above";
  return false;
}

int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

int in_child(const std::function<int()>& child, bool without_handlers) {
  const pid_t pid = without_handlers ? static_cast<pid_t>(::syscall(SYS_fork)) : ::fork();
  if (pid == 0) {
    ::alarm(120);  // a child that hangs is killed
    ::_exit(child());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace switchyard::shim::testing
