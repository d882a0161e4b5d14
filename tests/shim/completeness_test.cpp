// The table against the installed cuda.h. A launch, allocation, free, copy, pool, array, graph or
// export call fails here unless it is intercepted, or exempted by name with a reason. So a new CUDA
// version says itself what is to be decided.
#include <cuda.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace {

using Names = std::set<std::string>;

// The calls that a shim for memory and work must have an opinion on, by name.
const std::regex& interesting() {
  static const std::regex pattern(
      "cu(Mem|Array|Mipmapped|Ipc|Launch|Graph|Import|External|Multicast|Destroy|DeviceTotalMem|"
      "Device\\w*MemPool|Device\\w*GraphMem|GreenCtx|CtxCreate|CtxDestroy|DevicePrimaryCtx|"
      "Stream\\w*Capture|Stream\\w*Value|StreamBatchMemOp|Ctx\\w*Synchronize|Stream\\w*Synchronize|"
      "Event\\w*Synchronize)\\w*|"
      "cu\\w*(Alloc|Malloc|Memcpy|Memset|Launch)\\w*");
  return pattern;
}

Names declared_in(const std::string& text) {
  Names out;
  static const std::regex call("\\b(cu[A-Z]\\w*)\\s*\\(");
  for (auto at = std::sregex_iterator(text.begin(), text.end(), call); at != std::sregex_iterator();
       ++at) {
    out.insert((*at)[1]);
  }
  return out;
}

// Interesting calls that are in neither list.
Names undecided(const Names& declared, const Names& hooked, const Names& exempt) {
  Names out;
  for (const std::string& name : declared) {
    if (std::regex_match(name, interesting()) && !hooked.contains(name) && !exempt.contains(name)) {
      out.insert(name);
    }
  }
  return out;
}

const Names& declared() {
  static const Names names = [] {
    std::ifstream file(DECLARED_CALLS);
    return declared_in({std::istreambuf_iterator<char>(file), {}});
  }();
  return names;
}

const Names& hooked() {
  static const Names names = {
#define CUDA_CALL(name, rule) #name,
#include "shim/calls.def"
#undef CUDA_CALL
  };
  return names;
}

const Names& plain() {
  static const Names names = {
#define CUDA_CALL(name, rule) #name,
#include "shim/plain.def"
#undef CUDA_CALL
  };
  return names;
}

const std::multimap<std::string, std::string>& exemptions() {
  static const std::multimap<std::string, std::string> lines = {
#define EXEMPT(name, reason) {#name, reason},
#include "tests/shim/exempt.def"
#undef EXEMPT
  };
  return lines;
}

Names exempt() {
  Names out;
  for (const auto& [name, reason] : exemptions()) out.insert(name);
  return out;
}

TEST(Completeness, TheHeaderWasRead) {
  EXPECT_GT(declared().size(), 400u) << DECLARED_CALLS;
  EXPECT_TRUE(declared().contains("cuMemAlloc_v2"));
  EXPECT_TRUE(declared().contains("cuLaunchKernel_ptsz"));
  EXPECT_TRUE(declared().contains("cuMemcpy_ptds"));
}

TEST(Completeness, EveryCallThatMattersIsHookedOrExempted) {
  for (const std::string& name : undecided(declared(), hooked(), exempt())) {
    ADD_FAILURE() << name << " is in cuda.h " << CUDA_VERSION
                  << " and neither in shim/calls.def nor in tests/shim/exempt.def";
  }
}

TEST(Completeness, ACallNobodyDecidedOnIsFound) {
  const Names invented = declared_in(
      "CUresult cuMemAllocShiny(CUdeviceptr *); CUresult cuFoo(int);"
      "CUresult cuTensorLaunchAll_ptsz(void);");
  EXPECT_EQ(undecided(invented, hooked(), exempt()),
            (Names{"cuMemAllocShiny", "cuTensorLaunchAll_ptsz"}));
}

TEST(Completeness, EveryExemptionHasItsReasonOnce) {
  for (const auto& [name, reason] : exemptions()) {
    EXPECT_FALSE(reason.empty()) << name;
    EXPECT_EQ(exemptions().count(name), 1u) << name;
  }
}

TEST(Completeness, NoExemptionIsHooked) {
  for (const std::string& name : exempt()) EXPECT_FALSE(hooked().contains(name)) << name;
}

// While the contexts are away a call that nobody sees ends the process.
TEST(Completeness, EveryCallThatTouchesAContextIsCountedIn) {
  static const std::regex touches_none(
      "cu(GetError\\w*|DriverGetVersion|GetExportTable|Checkpoint\\w*|Logs\\w*)");
  for (const std::string& name : declared()) {
    const bool known = hooked().contains(name) || plain().contains(name);
    EXPECT_NE(known, std::regex_match(name, touches_none)) << name;
  }
}

TEST(Completeness, NoCallHasTwoRows) {
  for (const std::string& name : plain()) EXPECT_FALSE(hooked().contains(name)) << name;
}

// Older headers lack the newer names; the newest that we know has them all.
TEST(Completeness, EveryNameInTheTablesExists) {
  const bool newest = CUDA_VERSION >= 13000;
  Names all = exempt();
  all.insert(hooked().begin(), hooked().end());
  std::size_t known = 0;
  for (const std::string& name : all) {
    known += declared().contains(name) ? 1 : 0;
    EXPECT_TRUE(!newest || declared().contains(name)) << name << " is in no cuda.h any more";
  }
  EXPECT_GT(known, all.size() / 2);
}

}  // namespace
