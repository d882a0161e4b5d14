// Which GPU an island is on, and what stands against one.
#include "tools/run/island/island.h"

#include <gtest/gtest.h>

namespace switchyard::tools {
namespace {

NvmlReport machine(std::size_t gpus) {
  NvmlReport report;
  for (unsigned i = 0; i < gpus; ++i) {
    NvmlGpu gpu;
    gpu.index = i;
    gpu.uuid = "GPU-0000000" + std::to_string(i) + "-1111-2222-3333-444444444444";
    report.gpus.push_back(gpu);
  }
  return report;
}

std::string refusal(const char* visible, const NvmlReport& report) {
  const auto chosen = island::choose_gpu(visible, report);
  EXPECT_FALSE(chosen);
  if (chosen) return "";
  EXPECT_EQ(chosen.error().code, kRunRefused);
  return chosen.error().text;
}

TEST(ChooseGpu, TheOnlyOneNeedsNoName) {
  const NvmlReport report = machine(1);
  EXPECT_EQ(*island::choose_gpu(nullptr, report), report.gpus[0].uuid);
  EXPECT_EQ(*island::choose_gpu("0", report), report.gpus[0].uuid);
}

TEST(ChooseGpu, OneOfSeveralIsNamedByItsUuid) {
  const NvmlReport report = machine(2);
  EXPECT_EQ(*island::choose_gpu("GPU-00000001", report), report.gpus[1].uuid);
  EXPECT_NE(refusal(nullptr, report).find("would see 2"), std::string::npos);
  EXPECT_NE(refusal("0,1", report).find("names several (0,1)"), std::string::npos);
  for (const char* visible : {static_cast<const char*>(nullptr), "0,1", "1"}) {
    const std::string text = refusal(visible, report);
    EXPECT_NE(text.find("with --gpus, or leave it out"), std::string::npos) << text;
  }
  // CUDA's order may be another.
  EXPECT_NE(refusal("1", report).find("is no UUID"), std::string::npos);
  EXPECT_NE(refusal("GPU-9", report).find("no GPU GPU-9"), std::string::npos);
}

TEST(ChooseGpu, ModesThatNoIslandCanHaveAreRefused) {
  NvmlReport report = machine(1);
  report.gpus[0].compute_mode = 3;
  EXPECT_NE(refusal(nullptr, report).find("compute mode of GPU 0"), std::string::npos);
  report.gpus[0].compute_mode = 0;
  report.gpus[0].mig = true;
  EXPECT_NE(refusal(nullptr, report).find("divided by MIG"), std::string::npos);
  report.gpus.clear();
  report.problem = "NVML lists none";
  EXPECT_NE(refusal(nullptr, report).find("NVML lists none"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::tools
