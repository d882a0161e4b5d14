// The writes behind a burst that keep the GPU from being handed over at once, and when there are
// none.
#include <algorithm>

#include "shim/memory/owner.h"
#include "shim/reset.h"
#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim::testing {
namespace {

const CUstream kOurs = stream_number(77);
int g_streams_made = 0;
CUresult g_batch_result = CUDA_SUCCESS;

CUresult stream_create(CUstream* out, unsigned flags) {
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  ++g_streams_made;
  *out = kOurs;
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* out, unsigned) {
  *out = reinterpret_cast<CUevent>(0x99);
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent, CUstream stream) {
  if (g_gate_world->during_record) g_gate_world->during_record();
  const std::lock_guard hold(g_gate_world->lock);
  g_gate_world->log[stream].push_back("fence");
  return CUDA_SUCCESS;
}

CUresult wait_event(CUstream stream, CUevent, unsigned) {
  const std::lock_guard hold(g_gate_world->lock);
  g_gate_world->log[stream].push_back("behind the fence");
  return CUDA_SUCCESS;
}

CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams* writes, unsigned) {
  if (g_batch_result != CUDA_SUCCESS) return g_batch_result;
  const std::lock_guard hold(g_gate_world->lock);
  for (unsigned i = 0; i < count; ++i) {
    EXPECT_EQ(writes[i].operation, CU_STREAM_MEM_OP_WRITE_VALUE_32);
    g_gate_world->writes.emplace_back(writes[i].writeValue.address, writes[i].writeValue.value);
  }
  g_gate_world->log[stream].push_back("writes");
  return CUDA_SUCCESS;
}

class Linger : public GateTest {
 protected:
  Linger() {
    g_streams_made = 0;
    g_batch_result = CUDA_SUCCESS;
    world_.context = reinterpret_cast<CUcontext>(0x4000);
    g_driver.cuStreamCreate = stream_create;
    g_driver.cuEventCreate = event_create;
    g_driver.cuEventRecord = event_record;
    g_driver.cuStreamWaitEvent = wait_event;
    g_driver.cuStreamBatchMemOp_v2 = batch;
    arm(abi::kProgress | abi::kLinger);
  }
  ~Linger() override { run_resets(); }

  void wait_for(gate::Waiting::What what) { const gate::Waiting waiting(what); }
};

TEST_F(Linger, PutsWritesBehindTheLatestStream) {
  launch(first_, 1);
  launch(second_, 1);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(first_), (Log{"launch", "write 1"}));
  EXPECT_EQ(log(second_), (Log{"launch", "fence", "writes"})) << "a bridge, until ours is there";
  gpu_runs();
  EXPECT_FALSE(numbered()) << "the batch's number is among the writes";
  EXPECT_EQ(log(kOurs), (Log{"behind the fence", "writes"}));
}

// Nobody was told yet that the first has ended.
TEST_F(Linger, ContextWithTheHandleOfOneThatHasEndedDoesNotUseItsStreams) {
  memory::context_created(0, world_.context);
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  const std::uint64_t before = memory::current_owner();
  const Log ours = log(kOurs), latest = log(first_);
  EXPECT_FALSE(ours.empty());
  memory::context_created(0, world_.context);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(kOurs), ours);
  EXPECT_EQ(log(first_), latest);
  gate::context_gone(0, before);
  launch(second_, 1);
  wait_for(gate::Waiting::kStream);
  EXPECT_GT(log(kOurs).size(), ours.size());
  memory::context_gone(world_.context, swap::made_context(world_.context));
}

TEST_F(Linger, TheNumberOfALaunchThatComesBehindTheFenceIsItsOwnToWrite) {
  launch(first_, 1);
  std::atomic<bool> launching = false, fenced = false, launched = false;
  gpu_.during_launch = [&](CUstream) {
    launching = true;
    for (int i = 0; i < 10'000 && !fenced; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  std::thread other([&] {
    launch(first_, 1);
    launched = true;
  });
  while (!launching) std::this_thread::yield();
  gpu_.during_record = [&] {
    fenced = true;
    // Its end may have to wait for us.
    for (int i = 0; i < 200 && !launched; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  wait_for(gate::Waiting::kStream);
  EXPECT_TRUE(fenced);
  other.join();
  gpu_.during_launch = nullptr;
  const CUdeviceptr lingered = gpu_.writes[gpu_.writes.size() / 2].first;
  const auto numbers = std::count_if(gpu_.writes.begin(), gpu_.writes.end(),
                                     [&](const auto& write) { return write.first != lingered; });
  const Log own = log(first_);
  EXPECT_EQ(numbers, std::count_if(own.begin(), own.end(), [](const std::string& each) {
              return each.starts_with("write ");
            }));
}

TEST_F(Linger, AGraphsNumberIsWrittenByTheWaitForIt) {
  const auto graph = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::graph_launch(graph, nullptr, first_), CUDA_SUCCESS);
  EXPECT_TRUE(numbered());
  EXPECT_EQ(log(first_), Log{});
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(first_), (Log{"fence", "writes"}));
  gpu_runs();
  EXPECT_FALSE(numbered());
}

TEST_F(Linger, OnlyWhenItIsAskedFor) {
  arm(abi::kProgress);
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(kOurs), Log{});
}

TEST_F(Linger, NotBeforeAWaitForTheWholeContext) {
  launch(first_, 1);
  wait_for(gate::Waiting::kContext);
  EXPECT_EQ(log(kOurs), Log{});
}

TEST_F(Linger, DoesNotPileUpWhileTheLastOnesAreStillToCome) {
  for (int i = 0; i < 5; ++i) {
    launch(first_, 1);
    wait_for(gate::Waiting::kStream);
  }
  EXPECT_EQ(log(kOurs).size(), 10u);
  EXPECT_EQ(gpu_.writes.size(), 2 * (16 + 112) + 3u) << "past two only the numbers";
  gpu_runs();
  EXPECT_FALSE(numbered());
  const auto numbers = [this] {
    const Log all = log(first_);
    return std::count_if(all.begin(), all.end(),
                         [](const std::string& each) { return each.starts_with("write "); });
  };
  const auto before = numbers();
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  // Where the GPU looks slow by the clock, the launch fills its batch and writes its own number.
  const std::size_t own = numbers() - before;
  EXPECT_EQ(gpu_.writes.size(), 16 + 112 + own);
  EXPECT_EQ(g_streams_made, 1);
}

TEST_F(Linger, ANumberThatIsStillToComeIsNotOvertaken) {
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);  // number 1 is lent
  launch(first_, 1);
  wait_for(gate::Waiting::kContext);  // which would write number 2 into the stream itself
  EXPECT_EQ(log(first_), (Log{"launch", "fence", "writes", "launch"}));
  EXPECT_TRUE(numbered());
  gpu_runs();
  wait_for(gate::Waiting::kContext);
  EXPECT_EQ(log(first_), (Log{"launch", "fence", "writes", "launch", "write 2"}));
}

TEST_F(Linger, AStreamThatEndsBehindALentNumberLeavesNothingToWaitFor) {
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);  // number 1 is lent
  launch(first_, 1);
  gate::forget(first_);  // number 2 may not be written yet, and never is
  EXPECT_TRUE(numbered());
  gpu_runs();
  EXPECT_FALSE(numbered());
  launch(first_, 1);
  wait_for(gate::Waiting::kContext);
  EXPECT_EQ(log(first_).back(), "write 2");
}

TEST_F(Linger, ANumberThatCannotBeLentGoesIntoTheStreamItself) {
  launch(first_, 4);
  launch(first_, 1);
  g_batch_result = CUDA_ERROR_NOT_SUPPORTED;
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(first_).back(), "write 2");
  EXPECT_TRUE(numbered());
  gpu_runs();
  EXPECT_FALSE(numbered());
}

TEST_F(Linger, PutsNothingIntoACapturedStream) {
  launch(first_, 1);
  world_.captured.insert(first_);
  process().captures.store(1);
  wait_for(gate::Waiting::kStream);
  process().captures.store(0);
  EXPECT_EQ(log(kOurs), Log{});
}

TEST_F(Linger, ACaptureThatBeginsMeanwhileWaitsForTheFence) {
  launch(first_, 1);
  CaptureElsewhere elsewhere;
  gpu_.during_record = [&] {
    elsewhere.begin(second_);
    EXPECT_FALSE(elsewhere.in_the_driver());
  };
  wait_for(gate::Waiting::kStream);
  elsewhere.join();
  EXPECT_TRUE(elsewhere.in_the_driver());
}

TEST_F(Linger, NotInAnotherContext) {
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  gpu_runs();
  world_.context = reinterpret_cast<CUcontext>(0x8000);
  launch(second_, 1);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(kOurs), (Log{"behind the fence", "writes"}));
}

TEST_F(Linger, NotBehindAStreamThatIsGone) {
  launch(first_, 1);
  gate::forget(first_);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(kOurs), Log{});
}

TEST_F(Linger, GivesUpWhereTheDriverRefuses) {
  g_batch_result = CUDA_ERROR_NOT_SUPPORTED;
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  g_batch_result = CUDA_SUCCESS;
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(kOurs), (Log{"behind the fence"}));
}

TEST_F(Linger, GoesOnInTheNextContextAndTheNextPage) {
  launch(first_, 1);
  wait_for(gate::Waiting::kStream);
  gpu_runs();
  gate::context_gone(0, 0);
  launch(second_, 1);
  wait_for(gate::Waiting::kStream);
  gpu_runs();
  EXPECT_EQ(g_streams_made, 2);
  new_page();
  arm(abi::kProgress | abi::kLinger);
  launch(second_, 1);
  wait_for(gate::Waiting::kStream);
  EXPECT_EQ(log(kOurs).size(), 6u);
}

}  // namespace
}  // namespace switchyard::shim::testing
