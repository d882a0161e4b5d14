// What counts as an operation, when, and how many bytes.
#include <sys/syscall.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "shim/nccl/graphs.h"
#include "shim/rules/graph_collectives.h"
#include "shim/rules/launch.h"
#include "tests/shim/engine/host_heap.h"
#include "tests/shim/nccl/nccl_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Counts : public NcclTest {};

TEST_F(Counts, AnOperationIsCountedBeforeNcclIsCalled) {
  make(first_);
  NcclCall call;
  call.call = [this] {
    EXPECT_EQ(launched(first_), 1u) << "the call may wait for other ranks";
    return kNcclSuccess;
  };
  reduce(first_, call);
  EXPECT_EQ(launched(first_), 1u);
  EXPECT_EQ(shown(first_).bytes.load(), 32u);
  EXPECT_EQ(shown(first_).last_bytes.load(), 32u);
  EXPECT_NE(shown(first_).last_ns.load(), 0u);
}

TEST_F(Counts, AnOperationIsRecorded) {
  make(first_);
  reduce(first_);
  gather(first_);
  const abi::Record& record = page().records[(page().process.recorded.load() - 1) % abi::kRecords];
  const int slot = nccl::communicators::find(first_);
  EXPECT_EQ(record.what.load(),
            abi::collective_record(static_cast<unsigned>(slot),
                                   static_cast<std::uint32_t>(Collective::kAllGather), 2));
  EXPECT_EQ(record.bytes.load(), shown(first_).last_bytes.load());
}

TEST_F(Counts, WhatNcclRefusesIsTakenBack) {
  make(first_);
  EXPECT_EQ(reduce(first_, answering(kNcclInvalidArgument)), kNcclInvalidArgument);
  EXPECT_EQ(launched(first_), 0u);
  EXPECT_EQ(shown(first_).bytes.load(), 0u);
  EXPECT_EQ(reduce(first_, answering(kNcclInProgress)), kNcclInProgress);
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(Counts, EachKindIsCountedByItself) {
  make(first_, 3);
  const auto kind = [](Collective which) {
    return page().process.collectives[static_cast<unsigned>(which)].load();
  };
  reduce(first_);
  gather(first_);
  start();
  gather(first_);
  send(first_, 1);
  finish();
  EXPECT_EQ(kind(Collective::kAllReduce), 1u);
  EXPECT_EQ(kind(Collective::kAllGather), 2u);
  EXPECT_EQ(kind(Collective::kSend), 1u);
  const auto bytes = [](Collective which) {
    return page().process.collective_bytes[static_cast<unsigned>(which)].load();
  };
  EXPECT_EQ(bytes(Collective::kAllReduce), 32u);
  EXPECT_EQ(
      bytes(Collective::kAllReduce) + bytes(Collective::kAllGather) + bytes(Collective::kSend),
      shown(first_).bytes.load());
  reduce(first_, answering(kNcclInvalidArgument));
  EXPECT_EQ(kind(Collective::kAllReduce), 1u);
  EXPECT_EQ(bytes(Collective::kAllReduce), 32u);
  EXPECT_EQ(page().process.launching_thread.load(),
            static_cast<std::uint32_t>(::syscall(SYS_gettid)));
}

TEST_F(Counts, OneThatIsNotWatchedPasses) {
  EXPECT_EQ(reduce(second_, answering(kNcclRemoteError)), kNcclRemoteError);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Counts, BytesAreThoseOfAllParts) {
  make(first_, 4);
  gather(first_);
  EXPECT_EQ(shown(first_).last_bytes.load(), 4u * 32);
}

TEST_F(Counts, WhatNcclCallsItselfIsOne) {
  make(first_);
  NcclCall outer;
  outer.call = [this] { return reduce(first_); };
  reduce(first_, outer);
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(Counts, AGroupCountsWhenTheOutermostEnds) {
  make(first_);
  start();
  start();
  reduce(first_);
  finish();
  reduce(first_);
  EXPECT_EQ(launched(first_), 0u);
  finish();
  EXPECT_EQ(launched(first_), 2u);
  EXPECT_EQ(shown(first_).bytes.load(), 64u);
  start();
  finish();
  EXPECT_EQ(launched(first_), 2u) << "an empty group holds nothing of the last one";
}

TEST_F(Counts, OfAGroupThatFailsNothing) {
  make(first_);
  start();
  reduce(first_);
  EXPECT_EQ(finish(kNcclInternalError), kNcclInternalError);
  EXPECT_EQ(launched(first_), 0u);
  start();
  reduce(first_, answering(kNcclInvalidArgument));
  finish();
  EXPECT_EQ(launched(first_), 0u);
}

TEST_F(Counts, OfAGroupThatIsSimulatedNothing) {
  make(first_);
  start();
  reduce(first_);
  nccl::rules::group_simulate_end(NcclCall{}, nullptr);
  EXPECT_EQ(launched(first_), 0u);
  reduce(first_);
  EXPECT_EQ(launched(first_), 1u) << "the group has ended";
}

TEST_F(Counts, AGroupsEndWithoutAGroupIsNcclsToRefuse) {
  EXPECT_EQ(finish(kNcclInvalidUsage), kNcclInvalidUsage);
  make(first_);
  reduce(first_);
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(Counts, GroupsOfTwoThreadsAreApart) {
  make(first_);
  start();
  reduce(first_);
  std::thread([this] { reduce(first_); }).join();
  EXPECT_EQ(launched(first_), 1u);
  finish();
  EXPECT_EQ(launched(first_), 2u);
}

TEST_F(Counts, GroupsThatHaveEndedLeaveTheirMemoryToLaterOnes) {
  make(first_);
  const long before = pieces_in_use();
  for (int i = 0; i < 100; ++i) {
    std::thread([this] {
      start();
      reduce(first_);
      finish();
    }).join();
  }
  EXPECT_EQ(launched(first_), 100u);
  EXPECT_LE(pieces_in_use(), before + 1) << "of threads that have ended";
}

TEST_F(Counts, OfManyOpenGroupsNoMemoryIsLeftOnceTheyHaveEnded) {
  make(first_);
  constexpr int kThreads = 40;
  const long before = pieces_in_use();
  std::atomic<int> open{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start();
      reduce(first_);
      for (++open; open < kThreads;) std::this_thread::yield();
      finish();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(launched(first_), static_cast<unsigned>(kThreads));
  EXPECT_LE(pieces_in_use(), before + nccl::kMostKeptGroups) << "those that are kept";
}

// The memory of groups that have ended is in use elsewhere while one lives.
class NoneKept {
 public:
  NoneKept() {
    for (nccl::Group*& each : taken_) {
      each = nccl::group();
      nccl::t_nccl.group = nullptr;
    }
  }
  ~NoneKept() {
    for (nccl::Group* each : taken_) {
      nccl::t_nccl.group = each;
      nccl::end_group();
    }
  }

 private:
  nccl::Group* taken_[nccl::kMostKeptGroups] = {};
};

TEST_F(Counts, AGroupWithoutMemoryPassesAndIsNotCounted) {
  make(first_);
  {
    const NoneKept none;
    const EmptyHeap empty;
    int calls = 0;
    NcclCall call;
    call.call = [&calls] { return ++calls, kNcclSuccess; };
    start();
    EXPECT_EQ(reduce(first_, call), kNcclSuccess);
    EXPECT_EQ(nccl::rules::group_end(call), kNcclSuccess);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(launched(first_), 0u);
    make(second_);
    EXPECT_LT(nccl::communicators::find(second_), 0);
    EXPECT_EQ(page().process.unwatched.load(), 1u);
  }
  start();
  reduce(first_);
  finish();
  EXPECT_EQ(launched(first_), 1u) << "there is memory again";
}

TEST_F(Counts, SendsOfTwoRanksAreOperations) {
  make(first_, 2, 0);
  send(first_, 1);
  EXPECT_EQ(launched(first_), 1u);
  EXPECT_EQ(shown(first_).sent.load(), 0u);
}

TEST_F(Counts, OneSidedOperationsAreApartAlsoOfTwoRanks) {
  make(first_, 2, 0);
  const NcclCall call;
  nccl::rules::put_signal(call, nullptr, 8, kNcclFloat32, 1, nullptr, 0, 0, 0, 0, first_, nullptr);
  nccl::rules::signal(call, 1, 0, 0, 0, first_, nullptr);
  nccl::rules::wait_signal(call, 1, nullptr, first_, nullptr);
  EXPECT_EQ(launched(first_), 0u);
  EXPECT_EQ(shown(first_).sent.load(), 3u);
  EXPECT_EQ(shown(first_).bytes.load(), 32u);
  EXPECT_EQ(nccl::rules::signal(answering(kNcclInvalidArgument), 1, 0, 0, 0, first_, nullptr),
            kNcclInvalidArgument);
  EXPECT_EQ(shown(first_).sent.load(), 3u);
}

TEST_F(Counts, SendsOfMoreRanksAreApart) {
  make(first_, 3, 0);
  send(first_, 1);
  EXPECT_EQ(launched(first_), 0u);
  EXPECT_EQ(shown(first_).sent.load(), 1u);
  EXPECT_EQ(shown(first_).bytes.load(), 32u);
}

TEST_F(Counts, ASendToItselfIsNone) {
  make(first_, 2, 1);
  send(first_, 1);
  EXPECT_EQ(launched(first_), 0u);
}

// --- graphs ---

CUgraph g_into = nullptr;

class GraphCounts : public NcclTest {
 protected:
  GraphCounts() {
    g_driver.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
      *status =
          stream == kCapturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamGetCaptureInfo_v2 = [](CUstream stream, CUstreamCaptureStatus* status,
                                            cuuint64_t*, CUgraph* graph, const CUgraphNode**,
                                            size_t*) {
      *status =
          stream == kCapturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      *graph = g_into;
      return CUDA_SUCCESS;
    };
    make(first_);
    make(second_);
  }
  static CUgraph graph_at(std::uintptr_t at) { return reinterpret_cast<CUgraph>(at); }
  static CUgraphExec exec_at(std::uintptr_t at) { return reinterpret_cast<CUgraphExec>(at); }
  // Captures so many operations into `graph`.
  static void capture(CUgraph graph, ncclComm_t comm, int count, CUresult result = CUDA_SUCCESS) {
    const auto work = [=] {
      for (int i = 0; i < count; ++i) reduce(comm, {}, kCapturing);
    };
    capture(graph, work, result);
  }
  static void capture(CUgraph graph, const std::function<void()>& work,
                      CUresult result = CUDA_SUCCESS) {
    g_into = graph;
    rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, kCapturing);
    work();
    CUgraph out = nullptr;
    rules::end_capture([=](CUstream, CUgraph*) { return result; }, kCapturing, &out);
  }
  static void instantiate(CUgraph graph, CUgraphExec executable) {
    CUgraphExec out = executable;
    rules::graph_instantiate([](CUgraphExec*, CUgraph) { return CUDA_SUCCESS; }, &out, graph);
  }
  static void run(CUgraphExec executable, CUresult result = CUDA_SUCCESS,
                  CUstream stream = nullptr) {
    rules::graph_launch([=](CUgraphExec, CUstream) { return result; }, executable, stream);
  }
  static inline const CUstream kCapturing = reinterpret_cast<CUstream>(0x77);
};

TEST_F(GraphCounts, ACapturedOperationCountsAtEachLaunch) {
  capture(graph_at(0x100), first_, 3);
  EXPECT_EQ(launched(first_), 0u);
  instantiate(graph_at(0x100), exec_at(0x200));
  EXPECT_EQ(launched(first_), 0u);
  run(exec_at(0x200));
  run(exec_at(0x200));
  EXPECT_EQ(launched(first_), 6u);
  EXPECT_EQ(shown(first_).bytes.load(), 6u * 32);
}

// The null stream of the calls with a default stream per thread. The legacy one is never captured.
TEST_F(GraphCounts, AGraphThatIsLaunchedIntoACaptureOfTheThreadsOwnStreamCountsThere) {
  capture(graph_at(0x100), first_, 2);
  instantiate(graph_at(0x100), exec_at(0x200));
  g_driver.cuStreamIsCapturing_ptsz = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  g_driver.cuStreamGetCaptureInfo_v2 = [](CUstream stream, CUstreamCaptureStatus* status,
                                          cuuint64_t*, CUgraph* graph, const CUgraphNode**,
                                          size_t*) {
    *status = stream == CU_STREAM_PER_THREAD ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                             : CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = g_into;
    return CUDA_SUCCESS;
  };
  g_into = graph_at(0x110);
  CUgraph out = nullptr;
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, CUstream{nullptr});
  rules::graph_launch_per_thread([](CUgraphExec, CUstream) { return CUDA_SUCCESS; }, exec_at(0x200),
                                 CUstream{nullptr});
  rules::end_capture([](CUstream, CUgraph*) { return CUDA_SUCCESS; }, CUstream{nullptr}, &out);
  EXPECT_EQ(launched(first_), 0u);
  instantiate(graph_at(0x110), exec_at(0x210));
  run(exec_at(0x210));
  EXPECT_EQ(launched(first_), 2u);
}

TEST_F(GraphCounts, OneThatOnlySendsAmongMoreCountsAndPassesACut) {
  capture(graph_at(0x100), [this] { send(first_, 1, kCapturing); });
  instantiate(graph_at(0x100), exec_at(0x200));
  EXPECT_EQ(shown(first_).sent.load(), 0u);
  page().process.cut.store(
      1);  // all are at their targets: a launch that stops would wait for the monitor
  run(exec_at(0x200));
  run(exec_at(0x200));
  EXPECT_EQ(page().process.cut.load(), 1u) << "nobody has waited until the monitor seemed dead";
  page().process.cut.store(0);
  EXPECT_EQ(shown(first_).sent.load(), 2u);
  EXPECT_EQ(launched(first_), 0u);
  EXPECT_EQ(page().process.entered.load(), 2u);
  EXPECT_EQ(page().process.left.load(), 2u);
}

TEST_F(GraphCounts, ALaunchThatIsRefusedIsTakenBack) {
  capture(graph_at(0x100), first_, 3);
  instantiate(graph_at(0x100), exec_at(0x200));
  run(exec_at(0x200), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(launched(first_), 0u);
}

TEST_F(GraphCounts, AGroupInACaptureBelongsToTheGraph) {
  g_into = graph_at(0x100);
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, kCapturing);
  start();
  reduce(first_, {}, kCapturing);
  reduce(second_, {}, kCapturing);
  finish();
  CUgraph out = nullptr;
  rules::end_capture([](CUstream, CUgraph*) { return CUDA_SUCCESS; }, kCapturing, &out);
  EXPECT_EQ(launched(first_), 0u);
  instantiate(graph_at(0x100), exec_at(0x200));
  run(exec_at(0x200));
  EXPECT_EQ(launched(first_), 1u);
  EXPECT_EQ(launched(second_), 1u);
}

TEST_F(GraphCounts, TheExecutableOutlivesItsGraphAndBothAreForgotten) {
  capture(graph_at(0x100), first_, 1);
  instantiate(graph_at(0x100), exec_at(0x200));
  rules::graph_object_destroy([](CUgraph) { return CUDA_SUCCESS; }, graph_at(0x100));
  run(exec_at(0x200));
  EXPECT_EQ(launched(first_), 1u);
  rules::graph_destroy([](CUgraphExec) { return CUDA_SUCCESS; }, exec_at(0x200));
  EXPECT_FALSE(nccl::graphs::any());
  // Their handles are others' now.
  instantiate(graph_at(0x100), exec_at(0x200));
  run(exec_at(0x200));
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(GraphCounts, GraphsOfThePastDoNotMakeLookupsLonger) {
  const std::size_t before = nccl::graphs::size();
  capture(graph_at(0x100), first_, 1);
  for (std::uintptr_t at = 0x1000; at < 0x9000; at += 0x10) {
    instantiate(graph_at(0x100), exec_at(at));
    rules::graph_destroy([](CUgraphExec) { return CUDA_SUCCESS; }, exec_at(at));
  }
  EXPECT_LE(nccl::graphs::size(), before + 2) << "one may lie before the graph's own place";
  rules::graph_object_destroy([](CUgraph) { return CUDA_SUCCESS; }, graph_at(0x100));
  EXPECT_EQ(nccl::graphs::size(), before);
}

TEST_F(GraphCounts, WhatIsKnownOfAGraphEndsWithIt) {
  // Handles of no other test, which may leave graphs behind.
  const long before = pieces_in_use();
  for (std::uintptr_t i = 0; i < 1000; ++i) {
    capture(graph_at(0x123400000 + i * 0x40), first_, 1);
    instantiate(graph_at(0x123400000 + i * 0x40), exec_at(0x223400000 + i * 0x40));
  }
  EXPECT_GE(pieces_in_use(), before + 2000);
  for (std::uintptr_t i = 0; i < 1000; ++i) {
    rules::graph_object_destroy([](CUgraph) { return CUDA_SUCCESS; },
                                graph_at(0x123400000 + i * 0x40));
    rules::graph_destroy([](CUgraphExec) { return CUDA_SUCCESS; }, exec_at(0x223400000 + i * 0x40));
  }
  EXPECT_EQ(pieces_in_use(), before);
}

// Handles whose places are the same few, around the end of the table.
std::vector<std::uintptr_t> crowded_handles(std::size_t count) {
  std::vector<std::uintptr_t> handles;
  for (std::uintptr_t at = 0x10; handles.size() < count; at += 0x10) {
    const std::uint64_t place = ((at | 1) * 0x9E3779B97F4A7C15u) >> 50;  // as in graphs.cpp
    if (place < 2 || place >= 16382) handles.push_back(at);
  }
  return handles;
}

TEST_F(GraphCounts, OfManyWithTheSamePlaceThoseThatLiveAreFoundAndNoOthers) {
  const std::size_t before = nccl::graphs::size();
  capture(graph_at(0x100), first_, 1);
  const std::vector<std::uintptr_t> handles = crowded_handles(40);
  std::vector<bool> lives(handles.size());
  std::minstd_rand random(1);
  for (int turn = 0; turn < 4000; ++turn) {
    const std::size_t i = random() % handles.size();
    if (lives[i]) {
      nccl::graphs::gone(exec_at(handles[i]));
    } else {
      nccl::graphs::instantiated(graph_at(0x100), exec_at(handles[i]));
    }
    lives[i] = !lives[i];
    for (std::size_t k = 0; k < handles.size(); ++k)
      ASSERT_EQ(nccl::graphs::counts(exec_at(handles[k])), lives[k]) << turn;
  }
  for (const std::uintptr_t at : handles) nccl::graphs::gone(exec_at(at));
  nccl::graphs::gone(graph_at(0x100));
  EXPECT_EQ(nccl::graphs::size(), before);
}

TEST_F(GraphCounts, ACaptureThatFailsLeavesNothing) {
  capture(graph_at(0x100), first_, 1, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_FALSE(nccl::graphs::any());
}

TEST_F(GraphCounts, ClonesAndChildrenHaveThemToo) {
  capture(graph_at(0x100), first_, 1);
  CUgraph clone = graph_at(0x110);
  rules::graph_clone([](CUgraph*, CUgraph) { return CUDA_SUCCESS; }, &clone, graph_at(0x100));
  CUgraphNode node = nullptr;
  rules::add_child_graph(
      [](CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph) { return CUDA_SUCCESS; },
      &node, graph_at(0x120), nullptr, 0, graph_at(0x110));
  instantiate(graph_at(0x120), exec_at(0x200));
  run(exec_at(0x200));
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(GraphCounts, AGraphThatIsLaunchedIntoACaptureIsPartOfIt) {
  capture(graph_at(0x100), first_, 2);
  instantiate(graph_at(0x100), exec_at(0x200));
  g_into = graph_at(0x130);
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, kCapturing);
  run(exec_at(0x200), CUDA_SUCCESS, kCapturing);
  CUgraph out = nullptr;
  rules::end_capture([](CUstream, CUgraph*) { return CUDA_SUCCESS; }, kCapturing, &out);
  EXPECT_EQ(launched(first_), 0u);
  instantiate(graph_at(0x130), exec_at(0x210));
  run(exec_at(0x210));
  EXPECT_EQ(launched(first_), 2u);
}

}  // namespace
}  // namespace switchyard::shim
