// What every kind of copy adds to the page, in a real process on the simulated GPU.
#include "tests/system/harness.h"
#include "tests/system/played_monitor.h"

namespace switchyard::system_tests {
namespace {

struct Expected {
  const char* call;
  std::uint64_t link, device;
};

constexpr Expected kAll[] = {
    {"cuMemcpy", 3000, 0},
    {"cuMemcpyAsync", 3000, 0},
    {"cuMemcpyHtoD", 3000, 0},
    {"cuMemcpyHtoDAsync", 3000, 0},
    {"cuMemcpyHtoDAsync_v2_ptsz", 3000, 0},
    {"cuMemcpyDtoH", 3000, 0},
    {"cuMemcpyDtoHAsync", 3000, 0},
    {"cuMemcpyDtoD", 0, 3000},
    {"cuMemcpyDtoDAsync", 0, 3000},
    {"cuMemcpyPeer", 3000, 0},
    {"cuMemcpyPeerAsync", 3000, 0},
    {"cuMemcpyHtoA", 3000, 0},
    {"cuMemcpyHtoAAsync", 3000, 0},
    {"cuMemcpyAtoH", 3000, 0},
    {"cuMemcpyAtoHAsync", 3000, 0},
    {"cuMemcpyDtoA", 0, 3000},
    {"cuMemcpyAtoD", 0, 3000},
    {"cuMemcpyAtoA", 0, 3000},
    {"cuMemcpy2D", 0, 700},
    {"cuMemcpy2DUnaligned to the host", 700, 0},
    {"cuMemcpy2DAsync to the host", 700, 0},
    {"cuMemcpy3D", 0, 2100},
    {"cuMemcpy3DAsync to the host", 2100, 0},
    {"cuMemcpy3DPeer", 2100, 0},
    {"cuMemcpy3DPeerAsync", 2100, 0},
    {"batch", 1200, 0},
    {"cuMemsetD8", 0, 0},
    {"graph", 0, 0},
};

class Copies : public Scene {};

TEST_F(Copies, OfEveryKindAddTheirBytes) {
  PlayedMonitor monitor(socket());
  Child job = start({built("tests/jobs/job_copies")},
                    {{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_JOB", "copies"}});
  ASSERT_EQ(line_of(job), "ready");
  ASSERT_TRUE(monitor.joined());
  const abi::Lane& lane = monitor.lane();
  for (const Expected& each : kAll) {
    const std::uint64_t link = lane.link_bytes, device = lane.device_bytes, copies = lane.copies;
    EXPECT_EQ(ask(job, each.call), std::string("did ") + each.call);
    EXPECT_EQ(lane.link_bytes - link, each.link) << each.call;
    EXPECT_EQ(lane.device_bytes - device, each.device) << each.call;
    EXPECT_EQ(lane.copies - copies, 1u) << each.call;
  }
  const std::uint64_t link = lane.link_bytes;
  EXPECT_EQ(ask(job, "nothing"), "failed nothing 1");
  EXPECT_EQ(lane.link_bytes, link);
}

}  // namespace
}  // namespace switchyard::system_tests
