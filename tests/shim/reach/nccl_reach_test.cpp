// Every row of NCCL's table, through every way in. The ways are a direct link, dlsym of the
// program's scope and of a handle, and copies that were opened for a program alone. Runs preloaded,
// linked to the simulated NCCL.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "shim/nccl/abi.h"
#include "tests/shim/reach/elf.h"

extern "C" {
#define NCCL_CALL(Name, rule) decltype(nccl##Name) pnccl##Name;
#include "shim/nccl/calls.def"
#undef NCCL_CALL
}

namespace reach {
namespace {

namespace fs = std::filesystem;

struct NcclRow {
  const char* name;
  const void* linked;
};
const NcclRow kNcclRows[] = {
#define NCCL_CALL(Name, rule)                                   \
  {"nccl" #Name, reinterpret_cast<const void*>(&::nccl##Name)}, \
      {"pnccl" #Name, reinterpret_cast<const void*>(&::pnccl##Name)},
#include "shim/nccl/calls.def"
#undef NCCL_CALL
};

bool in_shim(const void* address) {
  return std::strstr(library_of(address), "libswitchyard.so") != nullptr;
}

using Group = ncclResult_t (*)();

class NcclReach : public ::testing::Test {
 protected:
  void SetUp() override {
    shim_ = ::dlopen(SHIM_PATH, RTLD_NOW | RTLD_NOLOAD);
    nccl_ = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(shim_, nullptr) << "the shim is not preloaded";
    ASSERT_NE(nccl_, nullptr);
  }
  // A copy that nobody else sees.
  static void* copy(int number) {
    static const std::string folder = [] {
      char name[] = "/tmp/switchyard-reach-XXXXXX";
      return std::string(::mkdtemp(name));
    }();
    const std::string path = folder + "/libnccl-" + std::to_string(number) + ".so";
    fs::copy_file(FAKENCCL_PATH, path, fs::copy_options::overwrite_existing);
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    fs::remove(path);
    EXPECT_NE(handle, nullptr) << ::dlerror();
    return handle;
  }
  // A group that begins by `start` is one of `handle`'s own NCCL: that can end it.
  static void expect_reaches(Group start, void* handle) {
    const auto end = reinterpret_cast<Group>(own_symbol(handle, "ncclGroupEnd"));
    EXPECT_EQ(end(), kNcclInvalidUsage);
    EXPECT_EQ(start(), kNcclSuccess);
    EXPECT_EQ(end(), kNcclSuccess);
  }
  static Group group_start(void* handle) {
    return reinterpret_cast<Group>(::dlsym(handle, "ncclGroupStart"));
  }

  void* shim_ = nullptr;
  void* nccl_ = nullptr;
};

TEST_F(NcclReach, DirectLink) {
  for (const NcclRow& row : kNcclRows) {
    EXPECT_EQ(row.linked, own_symbol(shim_, row.name)) << row.name;
    EXPECT_NE(own_symbol(nccl_, row.name), nullptr) << row.name;
  }
  expect_reaches(&::ncclGroupStart, nccl_);
  expect_reaches(&::pncclGroupStart, nccl_);
}

TEST_F(NcclReach, DlsymOfAHandle) {
  std::set<void*> entries;
  for (const NcclRow& row : kNcclRows) {
    void* found = ::dlsym(nccl_, row.name);
    EXPECT_TRUE(in_shim(found)) << row.name;
    EXPECT_TRUE(entries.insert(found).second) << row.name << " shares its entry";
  }
  expect_reaches(group_start(nccl_), nccl_);
}

TEST_F(NcclReach, DlsymOfTheProgramsScope) {
  void* program = ::dlopen(nullptr, RTLD_NOW);
  for (const NcclRow& row : kNcclRows) {
    EXPECT_TRUE(in_shim(::dlsym(RTLD_DEFAULT, row.name))) << row.name;
    EXPECT_TRUE(in_shim(::dlsym(RTLD_NEXT, row.name))) << row.name;
    EXPECT_TRUE(in_shim(::dlsym(program, row.name))) << row.name;
  }
  expect_reaches(group_start(RTLD_DEFAULT), nccl_);
  expect_reaches(group_start(program), nccl_);
}

TEST_F(NcclReach, CopiesOpenedForTheirProgramAloneHaveTheirOwnOriginals) {
  void* first = copy(1);
  void* second = copy(2);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  ASSERT_NE(own_symbol(first, "ncclGroupStart"), own_symbol(second, "ncclGroupStart"));
  EXPECT_TRUE(in_shim(::dlsym(first, "ncclAllReduce")));
  EXPECT_NE(::dlsym(first, "ncclAllReduce"), ::dlsym(second, "ncclAllReduce"));
  expect_reaches(group_start(first), first);
  expect_reaches(group_start(second), second);
  expect_reaches(&::ncclGroupStart, nccl_);
  // With the linked one these are three.
  void* fourth = copy(3);
  EXPECT_EQ(::dlsym(fourth, "ncclAllReduce"), own_symbol(fourth, "ncclAllReduce"))
      << "it passes untouched";
}

// The status of a program with these preloaded; -1: it did not end by itself.
int with_preloaded(const std::string& libraries) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LD_PRELOAD", libraries.c_str(), 1);
    ::execl(NCCL_PROGRAM, NCCL_PROGRAM, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  const bool ended = ::waitpid(child, &status, 0) == child && WIFEXITED(status);
  return ended ? WEXITSTATUS(status) : -1;
}

// A profiler of NCCL's calls asks for the next one by dlsym.
TEST_F(NcclReach, AnotherHookIsPassedOnceWhoeverOfBothComesFirst) {
  EXPECT_EQ(with_preloaded(std::string(NCCL_HOOK ":") + SHIM_PATH), 0);
  EXPECT_EQ(with_preloaded(std::string(SHIM_PATH ":") + NCCL_HOOK), 0);
}

TEST_F(NcclReach, WhatIsNoRowIsNcclsOwn) {
  for (const char* name : {"ncclGetUniqueId", "pncclGetUniqueId", "ncclCommCount"}) {
    EXPECT_EQ(::dlsym(nccl_, name), own_symbol(nccl_, name)) << name;
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, name), own_symbol(nccl_, name)) << name;
  }
  ::dlerror();
  EXPECT_EQ(::dlsym(nccl_, "ncclNoSuchCall"), nullptr);
  EXPECT_NE(::dlerror(), nullptr);
}

}  // namespace
}  // namespace reach
