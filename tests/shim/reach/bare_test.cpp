// A process that has nothing to do with CUDA, preloaded: it must not look as if it had.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/shim/reach/elf.h"

namespace {

std::string maps() {
  std::ifstream file("/proc/self/maps");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether a child that does `act` ends with 0.
template <typename Act>
bool passes_in_child(const Act& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act());
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Bare, TheShimIsThereAndTheDriverIsNot) {
  EXPECT_NE(maps().find("libswitchyard.so"), std::string::npos);
  EXPECT_EQ(maps().find("libcuda"), std::string::npos);
  EXPECT_EQ(maps().find("libnvidia-ml"), std::string::npos);
}

TEST(Bare, NoCudaIsSeenInTheGlobalScope) {
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "cuInit"), nullptr);
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), nullptr);
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"), nullptr);
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "ncclAllReduce"), nullptr);
  EXPECT_EQ(::dlsym(RTLD_NEXT, "pncclAllReduce"), nullptr);
  EXPECT_EQ(::dlsym(RTLD_NEXT, "cuInit"), nullptr);
  EXPECT_EQ(maps().find("libcuda"), std::string::npos) << "looking loaded it";
}

TEST(Bare, ALibraryOpenedLaterIsReached) {
  // In a child, so that the other cases stay without a driver.
  EXPECT_TRUE(passes_in_child([] {
    void* driver = ::dlopen(FAKECUDA_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return 2;
    Dl_info info{};
    void* entry = ::dlsym(driver, "cuInit");
    if (entry == nullptr || ::dladdr(entry, &info) == 0) return 3;
    return std::strstr(info.dli_fname, "libswitchyard.so") != nullptr ? 0 : 4;
  }));
}

// As a framework in Python: neither it nor its NCCL is in the program's scope.
TEST(Bare, ALibraryThatIsLinkedToNcclReachesItsOwn) {
  EXPECT_TRUE(passes_in_child([] {
    void* user = ::dlopen(NCCL_USER, RTLD_NOW | RTLD_LOCAL);
    if (user == nullptr) return 2;
    const auto start = reinterpret_cast<int (*)()>(::dlsym(user, "reach_group_start"));
    void* nccl = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (start == nullptr || nccl == nullptr) return 3;
    const auto end = reinterpret_cast<int (*)()>(reach::own_symbol(nccl, "ncclGroupEnd"));
    if (end() == 0) return 4;
    return start() == 0 && end() == 0 ? 0 : 5;
  }));
}

// Where a library finds cuInit that was opened with RTLD_DEEPBIND: a part of a path, or "".
std::string found_deep(const char* path) {
  void* driver = ::dlopen(FAKECUDA_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* deep = ::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (driver == nullptr || deep == nullptr) return "";
  using Look = void* (*)(void*, const char*);
  const auto look = reinterpret_cast<Look>(::dlsym(deep, "reach_deep_look"));
  return look != nullptr ? reach::library_of(look(driver, "cuInit")) : "";
}

// As Julia opens libcublas: libc's dlsym would come first.
TEST(Bare, ALibraryOfNvidiasIsReachedWhereItIsOpenedDeep) {
  EXPECT_TRUE(passes_in_child([] {
    return found_deep(DEEP_LIBRARY).find("libswitchyard.so") != std::string::npos ? 0 : 2;
  }));
}

TEST(Bare, AnotherLibraryIsOpenedAsItsProgramWants) {
  EXPECT_TRUE(passes_in_child([] {
    char folder[] = "/tmp/switchyard-bare-XXXXXX";
    if (::mkdtemp(folder) == nullptr) return 2;
    const std::string path = std::string(folder) + "/libcurl-deep.so";
    std::filesystem::copy_file(DEEP_LIBRARY, path);
    const std::string found = found_deep(path.c_str());
    std::filesystem::remove_all(folder);
    return found.find("libcuda.so.1") != std::string::npos ? 0 : 3;
  }));
}

// dlopen finds its caller by the return address.
TEST(Bare, ALibraryOpensWhatItsOwnRunpathNames) {
  constexpr const char* kName = "libreach_by_runpath.so";
  EXPECT_EQ(::dlopen(kName, RTLD_NOW | RTLD_LOCAL), nullptr);
  void* deep = ::dlopen(DEEP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(deep, nullptr) << ::dlerror();
  using Open = void* (*)(const char*);
  const auto open = reinterpret_cast<Open>(::dlsym(deep, "reach_deep_open"));
  ASSERT_NE(open, nullptr);
  EXPECT_NE(open(kName), nullptr) << ::dlerror();
}

TEST(Bare, WithTheKillSwitchTheDriversOwnAddressIsGiven) {
  EXPECT_TRUE(passes_in_child([] {
    ::setenv("SWITCHYARD_DISABLE", "1", 1);
    ::setenv("BARE_PROBE", "1", 1);
    ::execl("/proc/self/exe", "bare", static_cast<char*>(nullptr));
    return 9;
  }));
}

// Constructors run under the loader's lock.
TEST(Bare, AnIoctlWaitsForNoLibraryThatIsBeingOpened) {
  EXPECT_TRUE(passes_in_child([] {
    ::setenv("BARE_OPEN", IOCTL_CONSTRUCTOR, 1);
    ::execl("/proc/self/exe", "bare", static_cast<char*>(nullptr));
    return 9;
  }));
}

// glibc takes the storage of all libraries out of each thread's stack.
TEST(Bare, AThreadMayHaveTheSmallestStack) {
  constexpr std::size_t kSmallest = 16384;
  pthread_attr_t attributes;
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&attributes, kSmallest), 0);
  pthread_t thread{};
  const auto run = [](void* given) { return given; };
  int argument = 0;
  ASSERT_EQ(::pthread_create(&thread, &attributes, run, &argument), 0);
  void* answer = nullptr;
  EXPECT_EQ(::pthread_join(thread, &answer), 0);
  EXPECT_EQ(answer, &argument);
  ::pthread_attr_destroy(&attributes);
}

// Less storage is left for libraries like this one then.
TEST(Bare, AProgramThatIsAuditedStarts) {
  EXPECT_TRUE(passes_in_child([] {
    ::setenv("LD_AUDIT", AUDITOR, 1);
    ::setenv("BARE_AUDITED", "1", 1);
    ::execl("/proc/self/exe", "bare", static_cast<char*>(nullptr));
    return 9;
  }));
}

TEST(Bare, TheLibraryCanBeOpenedLate) {
  EXPECT_TRUE(passes_in_child([] {
    ::unsetenv("LD_PRELOAD");
    ::setenv("BARE_OPEN", SHIM_PATH, 1);
    ::execl("/proc/self/exe", "bare", static_cast<char*>(nullptr));
    return 9;
  }));
}

TEST(Bare, AForkedChildIsAsQuiet) {
  EXPECT_TRUE(passes_in_child([] {
    const bool quiet =
        ::dlsym(RTLD_DEFAULT, "cuInit") == nullptr && maps().find("libcuda") == std::string::npos;
    return quiet ? 0 : 1;
  }));
}

// Run anew under SWITCHYARD_DISABLE=1: every door passes through.
int probe() {
  void* driver = ::dlopen(FAKECUDA_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Dl_info info{};
  if (driver == nullptr || ::dladdr(::dlsym(driver, "cuInit"), &info) == 0) return 2;
  return std::strstr(info.dli_fname, "libcuda.so.1") != nullptr ? 0 : 3;
}

// Run anew, so that nothing has asked for ioctl before.
int open_a_library(const char* path) {
  ::alarm(20);  // one that hangs dies of it
  return ::dlopen(path, RTLD_NOW | RTLD_LOCAL) != nullptr ? 0 : 2;
}

// Run anew under an auditor.
int is_audited() {
  const bool both = maps().find(AUDITOR) != std::string::npos &&
                    maps().find("libswitchyard.so") != std::string::npos;
  return both ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("BARE_PROBE") != nullptr) return probe();
  if (const char* path = std::getenv("BARE_OPEN")) return open_a_library(path);
  if (std::getenv("BARE_AUDITED") != nullptr) return is_audited();
  ::testing::InitGoogleTest(&argc, argv);
  const char* preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr || std::strstr(preloaded, SHIM_PATH) == nullptr) {
    ::setenv("LD_PRELOAD", SHIM_PATH, 1);
    ::execv("/proc/self/exe", argv);
    std::perror("execv");
    return 1;
  }
  return RUN_ALL_TESTS();
}
