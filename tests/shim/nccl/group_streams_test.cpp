// Streams of a group with a twin wait for each other.
#include "shim/nccl/group_streams.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "shim/nccl/thread.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

// What each stream, and each event, stands behind.
using Behind = std::set<CUstream>;
std::map<CUstream, Behind> g_streams;
std::map<CUevent, Behind> g_events;

class GroupStreams : public EngineTest {
 protected:
  GroupStreams() {
    nccl::t_nccl = {};
    world_.context = reinterpret_cast<CUcontext>(0x4000);
    g_driver.cuStreamGetCtx = [](CUstream, CUcontext* out) {
      *out = g_world->context;
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamGetId = [](CUstream stream, unsigned long long* out) {
      *out = reinterpret_cast<unsigned long long>(stream);
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamGetId_ptsz = g_driver.cuStreamGetId;
    g_driver.cuEventCreate = [](CUevent* out, unsigned) {
      *out = reinterpret_cast<CUevent>(0x100 + 8 * g_events.size());
      g_events[*out] = {};
      return CUDA_SUCCESS;
    };
    g_driver.cuEventRecord = [](CUevent event, CUstream stream) {
      g_events[event] = g_streams[stream];
      return CUDA_SUCCESS;
    };
    g_driver.cuEventRecord_ptsz = g_driver.cuEventRecord;
    g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    g_driver.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
      g_streams[stream].insert(g_events[event].begin(), g_events[event].end());
      return CUDA_SUCCESS;
    };
  }
  ~GroupStreams() override {
    nccl::end_group();  // its memory is kept for the next
    nccl::t_nccl = {};
    g_events.clear();
  }
  // Each stands behind its own work alone.
  void fill(const std::vector<CUstream>& streams) {
    g_streams.clear();
    for (const CUstream each : streams) g_streams[each] = {each};
  }
  static CUstream stream(std::uintptr_t number) { return reinterpret_cast<CUstream>(16 * number); }
};

TEST_F(GroupStreams, AllWaitForAllInWhateverOrderTheyAreNamed) {
  for (const std::uintptr_t count : {2, 3, 4}) {
    std::vector<CUstream> order;
    for (std::uintptr_t i = 1; i <= count; ++i) order.push_back(stream(i));
    const Behind all(order.begin(), order.end());
    do {
      fill(order);
      nccl::end_group();
      for (const CUstream each : order) {
        nccl::group_streams::note(5, each, each == stream(1));
      }
      nccl::group_streams::join();
      for (const CUstream each : order) EXPECT_EQ(g_streams[each], all) << count;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_F(GroupStreams, ThoseOfOneCommunicatorAloneAreLeftToNccl) {
  fill({stream(1), stream(2)});
  for (const std::uintptr_t i : {1, 2}) nccl::group_streams::note(5, stream(i), false);
  nccl::group_streams::note(6, stream(2), true);
  nccl::group_streams::join();
  EXPECT_EQ(g_streams[stream(1)], Behind{stream(1)});
  EXPECT_EQ(g_streams[stream(2)], Behind{stream(2)});
}

// Before CUDA 12.0.
TEST_F(GroupStreams, OfADriverThatDoesNotNumberStreamsGoOnApart) {
  g_driver.cuStreamGetId = nullptr;
  g_driver.cuStreamGetId_ptsz = nullptr;
  fill({stream(1), stream(2)});
  for (const std::uintptr_t i : {1, 2}) nccl::group_streams::note(5, stream(i), i == 1);
  nccl::group_streams::join();
  EXPECT_EQ(g_streams[stream(1)], Behind{stream(1)});
  EXPECT_EQ(g_streams[stream(2)], Behind{stream(2)});
}

}  // namespace
}  // namespace switchyard::shim
