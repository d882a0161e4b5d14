// Every row of the table, through every way in: direct link, dlsym, cuGetProcAddress of both
// versions, legacy and per-thread. Runs preloaded, over the simulated driver, to which it is
// linked.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "tests/shim/reach/elf.h"
#include "tests/shim/reach/rows.h"

extern "C" {
const char* reach_marker();
void* reach_next_first(const char* name);
void* reach_next_second(const char* name);
}

namespace reach {
namespace {

bool in_shim(const void* address) {
  return std::strstr(library_of(address), "libswitchyard.so") != nullptr;
}

// Our exported symbol is `endbr64; jmp *slot(%rip)`: where it goes.
void* target_of(const void* stub) {
  const auto* code = static_cast<const unsigned char*>(stub);
  constexpr unsigned char kJump[] = {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25};
  if (std::memcmp(code, kJump, sizeof(kJump)) != 0) return nullptr;
  std::int32_t offset = 0;
  std::memcpy(&offset, code + sizeof(kJump), sizeof(offset));
  void* target = nullptr;
  std::memcpy(&target, code + sizeof(kJump) + sizeof(offset) + offset, sizeof(target));
  return target;
}

class Reach : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shim_ = ::dlopen(SHIM_PATH, RTLD_NOW | RTLD_NOLOAD);
    driver_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  }
  void SetUp() override {
    ASSERT_NE(shim_, nullptr) << "the shim is not preloaded";
    ASSERT_NE(driver_, nullptr);
  }
  // The rule's entry of a row, from our library's own export.
  static void* entry(const char* name) {
    const void* stub = own_symbol(shim_, name);
    return stub != nullptr ? target_of(stub) : nullptr;
  }
  static void* original(const char* name) { return own_symbol(driver_, name); }

  static void* shim_;
  static void* driver_;
};

void* Reach::shim_ = nullptr;
void* Reach::driver_ = nullptr;

TEST_F(Reach, EveryRowIsExportedAndInTheDriver) {
  std::set<void*> entries;
  for (const Row* row = kRows; row->name != nullptr; ++row) {
    EXPECT_NE(entry(row->name), nullptr) << row->name;
    EXPECT_TRUE(entries.insert(entry(row->name)).second) << row->name << " shares its entry";
    EXPECT_NE(original(row->name), nullptr) << row->name;
  }
  EXPECT_GT(entries.size(), 100u);
}

TEST_F(Reach, DirectLink) {
  for (const Row* row = kRows; row->name != nullptr; ++row) {
    EXPECT_EQ(row->linked, own_symbol(shim_, row->name)) << row->name;
  }
}

TEST_F(Reach, DlsymOfTheDriversHandle) {
  for (const Row* row = kRows; row->name != nullptr; ++row) {
    EXPECT_EQ(::dlsym(driver_, row->name), entry(row->name)) << row->name;
  }
}

TEST_F(Reach, DlsymOfTheDefaultScope) {
  for (const Row* row = kRows; row->name != nullptr; ++row) {
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, row->name), entry(row->name)) << row->name;
  }
}

TEST_F(Reach, DlsymOfTheNextScopeFromALibrary) {
  for (const Row* row = kRows; row->name != nullptr; ++row) {
    EXPECT_EQ(reach_next_first(row->name), entry(row->name)) << row->name;
  }
}

TEST_F(Reach, DlsymOfALibraryOpenedByItsPath) {
  void* again = ::dlopen(library_of(original("cuInit")), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(again, nullptr) << ::dlerror();
  EXPECT_EQ(::dlsym(again, "cuLaunchKernel"), entry("cuLaunchKernel"));
  ::dlclose(again);
}

TEST_F(Reach, WhatIsNoRowIsTheDriversOwn) {
  for (const char* name : {"cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"}) {
    EXPECT_EQ(::dlsym(driver_, name), original(name)) << name;
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, name), original(name)) << name;
  }
}

TEST_F(Reach, AnUnknownNameIsNullWithAnError) {
  ::dlerror();
  EXPECT_EQ(::dlsym(driver_, "cuNoSuchCall"), nullptr);
  EXPECT_NE(::dlerror(), nullptr);
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "cuNoSuchCall"), nullptr);
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "nvmlNoSuchCall"), nullptr);
  EXPECT_EQ(reach_next_first("cuNoSuchCall"), nullptr);
}

TEST_F(Reach, NamesOfOthersMeanWhatTheyMeanForTheCaller) {
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "printf"), reinterpret_cast<void*>(&::printf));
  // The first library's own definition comes first; after it comes the second's; then none.
  EXPECT_STREQ(reach_marker(), "first");
  using Marker = const char* (*)();
  const auto second = reinterpret_cast<Marker>(reach_next_first("reach_marker"));
  ASSERT_NE(second, nullptr);
  EXPECT_STREQ(second(), "second");
  EXPECT_EQ(reach_next_second("reach_marker"), nullptr);
  const auto from_here = reinterpret_cast<Marker>(::dlsym(RTLD_NEXT, "reach_marker"));
  ASSERT_NE(from_here, nullptr);
  EXPECT_STREQ(from_here(), "first");
}

TEST_F(Reach, DlvsymIsLeftAlone) {
  EXPECT_FALSE(in_shim(reinterpret_cast<void*>(&::dlvsym)));
  EXPECT_TRUE(in_shim(reinterpret_cast<void*>(&::dlsym)));
  void* real = ::dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
  EXPECT_NE(real, nullptr);
  EXPECT_FALSE(in_shim(real));
}

TEST_F(Reach, NvmlByEveryDoor) {
  for (const char* name : {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"}) {
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, name), nullptr) << "NVML is not loaded yet";
  }
  void* nvml = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nvml, nullptr) << ::dlerror();
  for (const char* name : {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"}) {
    EXPECT_EQ(::dlsym(nvml, name), own_symbol(shim_, name)) << name;
  }
  for (const char* name : {"nvmlInit_v2", "nvmlDeviceGetComputeRunningProcesses"}) {
    EXPECT_EQ(::dlsym(nvml, name), own_symbol(nvml, name)) << name;
  }
}

// --- cuGetProcAddress ---

using Ask1 = CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t);
using Ask2 = CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t,
                                CUdriverProcAddressQueryResult*);

constexpr int kVersions[] = {2000,  3000,  3010,  3020,  4000,  4010,  5000,  6000,  6050,
                             7000,  8000,  9000,  9020,  10000, 10010, 10020, 11000, 11010,
                             11020, 11030, 11040, 11060, 11070, 11080, 12000, 12010, 12020,
                             12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020};
constexpr cuuint64_t kFlags[] = {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};

// "cuMemAlloc_v2_ptsz" → "cuMemAlloc", the name that is asked for.
std::string plain(std::string name) {
  for (const char* twin : {"_ptsz", "_ptds"}) {
    if (name.size() > 5 && name.compare(name.size() - 5, 5, twin) == 0)
      name.resize(name.size() - 5);
  }
  const auto version = name.rfind("_v");
  if (version != std::string::npos && version + 3 == name.size()) name.resize(version);
  return name;
}

class ReachByAddress : public Reach {
 protected:
  void SetUp() override {
    Reach::SetUp();
    for (const Row* row = kRows; row->name != nullptr; ++row) {
      names_.insert(plain(row->name));
      rows_.emplace(original(row->name), row->name);
    }
    for (const char* other : {"cuDeviceGetCount", "cuNoSuchCall", ""}) names_.insert(other);
  }

  // Compares what we answer with what the driver answers, for every name, version and flag. The
  // rows that were reached so.
  template <typename Real, typename Ours>
  std::set<std::string> compare(Real real, Ours ours) {
    std::set<std::string> reached;
    for (const std::string& name : names_) {
      for (const int version : kVersions) {
        for (const cuuint64_t flags : kFlags) {
          void* theirs = nullptr;
          void* answer = nullptr;
          const auto expected = real(name.c_str(), &theirs, version, flags);
          EXPECT_EQ(ours(name.c_str(), &answer, version, flags), expected) << name;
          const auto row = rows_.find(theirs);
          void* wanted = theirs == nullptr || row == rows_.end() ? theirs : entry(row->second);
          EXPECT_EQ(answer, wanted)
              << name << " at " << version << " with " << flags << " is in " << library_of(answer);
          if (theirs != nullptr && row != rows_.end()) reached.insert(row->second);
        }
      }
    }
    return reached;
  }

  void expect_all(const std::set<std::string>& reached) {
    for (const auto& [address, name] : rows_) {
      // The two that ask are answered with themselves only at their own versions.
      EXPECT_TRUE(reached.contains(name)) << name << " is given out for no version and flag";
    }
  }

  std::set<std::string> names_;
  std::map<void*, const char*> rows_;
};

TEST_F(ReachByAddress, TheOldCall) {
  const auto real = reinterpret_cast<Ask1>(original("cuGetProcAddress"));
  const auto ours = reinterpret_cast<Ask1>(::dlsym(driver_, "cuGetProcAddress"));
  ASSERT_NE(static_cast<void*>(nullptr), original("cuGetProcAddress"));
  expect_all(compare(real, ours));
}

TEST_F(ReachByAddress, TheNewCallWithItsStatus) {
  const auto real = reinterpret_cast<Ask2>(original("cuGetProcAddress_v2"));
  const auto ours = reinterpret_cast<Ask2>(::dlsym(driver_, "cuGetProcAddress_v2"));
  using Answer = std::pair<CUresult, int>;
  const auto with_status = [](Ask2 ask) {
    return [ask](const char* name, void** out, int version, cuuint64_t flags) {
      CUdriverProcAddressQueryResult status{};
      const CUresult result = ask(name, out, version, flags, &status);
      return Answer{result, static_cast<int>(status)};
    };
  };
  expect_all(compare(with_status(real), with_status(ours)));
  void* out = nullptr;
  EXPECT_EQ(ours("cuInit", &out, 12000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(out, entry("cuInit"));
  EXPECT_EQ(ours("cuInit", nullptr, 12000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace reach
