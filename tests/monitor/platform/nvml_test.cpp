// NVML's answers that are no numbers, as the library of the simulated GPU gives them.
#include "monitor/platform/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace switchyard::monitor::test {
namespace {

// A GPU that no process uses: each that had used it has ended.
TEST(Nvml, ThatNobodyRanIsAnAnswer) {
  char folder[] = "/tmp/switchyard-nvml-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  ::setenv("FAKECUDA_STATE", (std::string(folder) + "/gpu").c_str(), 1);
  // The next one to ask for a library of this name gets this one.
  void* const library = ::dlopen(SWITCHYARD_SIMULATED_NVML, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto gpus = open_nvml();
  ASSERT_EQ(gpus->list().size(), 1u) << gpus->problem();
  const auto loads = gpus->loads(0);
  ASSERT_TRUE(loads) << "NOT_FOUND is no failure";
  EXPECT_TRUE(loads->empty());
  const auto processes = gpus->processes(0);
  ASSERT_TRUE(processes);
  EXPECT_TRUE(processes->empty());
  ::unsetenv("FAKECUDA_STATE");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace switchyard::monitor::test
