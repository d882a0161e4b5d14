// A driver that refuses only our own requests. The job's work is done all the same, and a closed
// gate still holds its threads.
#include <fstream>
#include <sstream>

#include "tests/system/gate_scene.h"

namespace switchyard::system_tests {
namespace {

// The job's own calls of these names come before ours, or don't matter (job_gate.cpp).
constexpr const char* kGateFailures[] = {
    "cuMemHostRegister_v2:1+",
    "cuMemHostRegister_v2:1+=801",
    "cuMemHostGetDevicePointer_v2:1+",
    "cuStreamWaitValue32_v2:1+=801",
    "cuStreamWaitValue32_v2:20+",
    "cuStreamWriteValue32_v2:1+=801",
    "cuStreamWriteValue32_v2:3",
    "cuStreamWriteValue32_v2:4+",
    "cuStreamBatchMemOp_v2:1+=801",
    "cuStreamBatchMemOp_v2:1+=1",
    "cuStreamBatchMemOp_v2:3+",
    "cuStreamBatchMemOp_v2:7=400",
    "cuStreamWaitEvent:1+",
    "cuStreamWaitEvent:2",
    "cuStreamCreate:3",
    "cuEventCreate:9+",
    "cuEventCreate:12+",
    "cuEventRecord:1+",
    "cuEventRecord:2",
    "cuEventRecord:7+=400",
    "cuEventQuery:1+",
    "cuEventQuery:2+=801",
    "cuEventElapsedTime:1+",
    "cuEventElapsedTime:2=400",
    "cuThreadExchangeStreamCaptureMode:1+",
};

class FailingCalls : public GateScene, public ::testing::WithParamInterface<const char*> {
 protected:
  // Which calls were refused.
  std::string refused() {
    std::ostringstream out;
    out << std::ifstream(in_folder("failed")).rdbuf();
    return out.str();
  }
};

TEST_P(FailingCalls, CostTheJobNothing) {
  const std::string failure = GetParam();
  // Where the GPU is done already, the CPU writes a number itself, and the GPU is not asked to.
  start_job({{"FAKECUDA_FAIL", failure + ",cuStreamQuery:1+=600"},
             {"FAKECUDA_FAILED", in_folder("failed")}});
  monitor_->arm(abi::kGateArmed | abi::kProgress | abi::kLinger);
  long launched = count();
  for (int i = 0; i < 5; ++i) {
    done(3, "launch 50", "sync");
    done(4, "launch 20", "graph 3", "sync");
    done(1, "copy 3", "sync");
    launched += 73;
  }
  monitor_->close(abi::kClosedByPause);
  tell(3, "launch 10");
  EXPECT_TRUE(held(1));
  monitor_->open();
  expect_launched(3, launched + 10);
  EXPECT_NE(refused().find(failure.substr(0, failure.find(':'))), std::string::npos)
      << "the call was never refused";
}

TEST_F(GateScene, ACallThatFailsForTheProgramIsToldToIt) {
  start_job({{"FAKECUDA_FAIL", "cuLaunchKernel:7=999"}});
  tell(3, "launch 20");
  EXPECT_EQ(line(), "failed 3 launch 999");
}

std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (const auto& [mark, word] : {std::pair{":", "From"}, {"+", "On"}, {"=", "With"}}) {
    if (const auto at = name.find(mark); at != std::string::npos) name.replace(at, 1, word);
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingCalls, ::testing::ValuesIn(kGateFailures), name_of);

}  // namespace
}  // namespace switchyard::system_tests
