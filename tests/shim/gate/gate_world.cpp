#include "tests/shim/gate/gate_world.h"

#include <sys/mman.h>
#include <unistd.h>

namespace switchyard::shim::testing {

GateWorld* g_gate_world = nullptr;

namespace {

void note(CUstream stream, const std::string& what) {
  const std::lock_guard hold(g_gate_world->lock);
  g_gate_world->log[stream].push_back(what);
}

CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  EXPECT_EQ(value, 0u);
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_WAIT_VALUE_EQ));
  if (g_gate_world->during_wait) g_gate_world->during_wait();
  if (g_gate_world->wait_result != CUDA_SUCCESS) return g_gate_world->wait_result;
  const auto* word = reinterpret_cast<const abi::Word32*>(address);
  note(stream, word->load() == 0 ? "wait" : "wait (closed)");
  return CUDA_SUCCESS;
}

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  EXPECT_EQ(flags, 0u);
  if (g_gate_world->write_result != CUDA_SUCCESS) return g_gate_world->write_result;
  note(stream, "write " + std::to_string(value));
  const std::lock_guard hold(g_gate_world->lock);
  g_gate_world->writes.emplace_back(address, value);
  return CUDA_SUCCESS;
}

CUresult write_and_wait(CUstream stream, unsigned count, CUstreamBatchMemOpParams* both, unsigned) {
  ++g_gate_world->batches;
  // All or nothing.
  for (const CUresult result : {g_gate_world->batch_result, g_gate_world->wait_result}) {
    if (result != CUDA_SUCCESS) return result;
  }
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(both[0].operation, CU_STREAM_MEM_OP_WRITE_VALUE_32);
  EXPECT_EQ(both[1].operation, CU_STREAM_MEM_OP_WAIT_VALUE_32);
  const auto& write = both[0].writeValue;
  const auto& wait = both[1].waitValue;
  const CUresult result = write_value(stream, write.address, write.value, write.flags);
  return result != CUDA_SUCCESS ? result : wait_value(stream, wait.address, wait.value, wait.flags);
}

CUresult query(CUstream) {
  if (g_gate_world->during_query) g_gate_world->during_query();
  return g_gate_world->query_result;
}

CUresult register_memory(void*, size_t bytes, unsigned flags) {
  EXPECT_EQ(bytes, abi::kGatesBytes);
  EXPECT_EQ(flags,
            static_cast<unsigned>(CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
  if (g_gate_world->during_registration) g_gate_world->during_registration();
  ++g_gate_world->registrations;
  return g_gate_world->register_result;
}

CUresult device_pointer(CUdeviceptr* out, void* pointer, unsigned) {
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

CUresult original_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream stream, void**, void**) {
  if (g_gate_world->during_launch) g_gate_world->during_launch(stream);
  note(stream, "launch");
  return CUDA_SUCCESS;
}

}  // namespace

GateTest::GateTest() {
  g_gate_world = &gpu_;
  g_driver.cuStreamWaitValue32_v2 = wait_value;
  g_driver.cuStreamWriteValue32_v2 = write_value;
  g_driver.cuStreamBatchMemOp_v2 = write_and_wait;
  g_driver.cuStreamQuery = query;
  g_driver.cuMemHostRegister_v2 = register_memory;
  g_driver.cuMemHostGetDevicePointer_v2 = device_pointer;
  use_streams();
  new_page();
}

GateTest::~GateTest() {
  map_page(-1);
  g_gate_world = nullptr;
}

int GateTest::new_page() {
  const int fd = ::memfd_create("page", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, abi::kPageBytes), 0);
  EXPECT_TRUE(map_page(fd));
  view::make(fd);
  ::close(fd);
  return fd;
}

CUresult GateTest::launch(CUstream stream) {
  return rules::launch(original_launch, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                       static_cast<void**>(nullptr), static_cast<void**>(nullptr));
}

CUresult GateTest::launch_per_thread(CUstream stream) {
  return rules::launch_per_thread(original_launch, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                                  static_cast<void**>(nullptr), static_cast<void**>(nullptr));
}

CUresult GateTest::synchronise() {
  return rules::synchronise<gate::Waiting::kStream>([] { return CUDA_SUCCESS; });
}

void GateTest::gpu_runs() {
  const std::lock_guard hold(gpu_.lock);
  for (const auto& [address, value] : gpu_.writes) {
    reinterpret_cast<abi::Word32*>(address)->store(value);
  }
  gpu_.writes.clear();
}

Log GateTest::log(CUstream stream) {
  const std::lock_guard hold(gpu_.lock);
  return gpu_.log[stream];
}

}  // namespace switchyard::shim::testing
