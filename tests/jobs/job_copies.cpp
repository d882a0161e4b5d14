// job_copies: copies of every kind, one for each line on stdin, which names the call.
//
// Answers "did CALL" or "failed CALL CODE". A plain copy is of 3000 bytes, one of a box of 100 by
// 7, with a depth of 3 times as many.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

namespace {

constexpr std::size_t kBytes = 3000, kWidth = 100, kHeight = 7, kDepth = 3;

extern "C" CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr, const void*, std::size_t, CUstream);

CUdeviceptr g_one = 0, g_other = 0;
CUarray g_array = nullptr, g_other_array = nullptr;
void* g_host = nullptr;
CUcontext g_context = nullptr;
CUstream g_stream = nullptr;

bool open_gpu() {
  const CUDA_ARRAY_DESCRIPTOR shape = {4096, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&g_context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(g_context) == CUDA_SUCCESS && cuMemAlloc(&g_one, 4096) == CUDA_SUCCESS &&
         cuMemAlloc(&g_other, 4096) == CUDA_SUCCESS &&
         cuMemHostAlloc(&g_host, 4096, 0) == CUDA_SUCCESS &&
         cuArrayCreate(&g_array, &shape) == CUDA_SUCCESS &&
         cuArrayCreate(&g_other_array, &shape) == CUDA_SUCCESS &&
         cuStreamCreate(&g_stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

template <typename Box>
Box box(bool to_host) {
  Box out{};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = g_one;
  out.srcPitch = out.dstPitch = kWidth;
  out.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  out.dstHost = g_host;
  out.dstDevice = g_other;
  out.WidthInBytes = kWidth;
  out.Height = kHeight;
  if constexpr (requires { out.Depth; }) {
    out.Depth = kDepth;
    out.srcHeight = out.dstHeight = kHeight;
  }
  if constexpr (requires { out.srcContext; }) out.srcContext = out.dstContext = g_context;
  return out;
}

CUresult batch() {
#if CUDA_VERSION >= 13000
  CUdeviceptr to[] = {g_other, g_other + 2048}, from[] = {g_one, g_one + 2048};
  std::size_t sizes[] = {1000, 200}, first = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, g_stream);
#else
  return cuMemcpyAsync(g_other, g_one, 1200, g_stream);
#endif
}

// A copy that becomes the node of a graph, and the graph's run.
CUresult graph() {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUresult result = cuStreamBeginCapture(g_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == CUDA_SUCCESS) result = cuMemcpyDtoDAsync(g_other, g_one, kBytes, g_stream);
  if (result == CUDA_SUCCESS) result = cuStreamEndCapture(g_stream, &graph);
  if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&executable, graph, 0);
  if (result == CUDA_SUCCESS) result = cuGraphLaunch(executable, g_stream);
  return result;
}

using Calls = std::map<std::string, std::function<CUresult()>>;

Calls plain() {
  return {
      {"cuMemcpy", [] { return cuMemcpy(g_other, g_one, kBytes); }},
      {"cuMemcpyAsync", [] { return cuMemcpyAsync(g_other, g_one, kBytes, g_stream); }},
      {"cuMemcpyHtoD", [] { return cuMemcpyHtoD(g_one, g_host, kBytes); }},
      {"cuMemcpyHtoDAsync", [] { return cuMemcpyHtoDAsync(g_one, g_host, kBytes, g_stream); }},
      {"cuMemcpyHtoDAsync_v2_ptsz",
       [] { return cuMemcpyHtoDAsync_v2_ptsz(g_one, g_host, kBytes, nullptr); }},
      {"cuMemcpyDtoH", [] { return cuMemcpyDtoH(g_host, g_one, kBytes); }},
      {"cuMemcpyDtoHAsync", [] { return cuMemcpyDtoHAsync(g_host, g_one, kBytes, g_stream); }},
      {"cuMemcpyDtoD", [] { return cuMemcpyDtoD(g_other, g_one, kBytes); }},
      {"cuMemcpyDtoDAsync", [] { return cuMemcpyDtoDAsync(g_other, g_one, kBytes, g_stream); }},
      {"cuMemcpyPeer", [] { return cuMemcpyPeer(g_other, g_context, g_one, g_context, kBytes); }},
      {"cuMemcpyPeerAsync",
       [] { return cuMemcpyPeerAsync(g_other, g_context, g_one, g_context, kBytes, g_stream); }},
      {"cuMemcpyHtoA", [] { return cuMemcpyHtoA(g_array, 0, g_host, kBytes); }},
      {"cuMemcpyHtoAAsync", [] { return cuMemcpyHtoAAsync(g_array, 0, g_host, kBytes, g_stream); }},
      {"cuMemcpyAtoH", [] { return cuMemcpyAtoH(g_host, g_array, 0, kBytes); }},
      {"cuMemcpyAtoHAsync", [] { return cuMemcpyAtoHAsync(g_host, g_array, 0, kBytes, g_stream); }},
      {"cuMemcpyDtoA", [] { return cuMemcpyDtoA(g_array, 0, g_one, kBytes); }},
      {"cuMemcpyAtoD", [] { return cuMemcpyAtoD(g_one, g_array, 0, kBytes); }},
      {"cuMemcpyAtoA", [] { return cuMemcpyAtoA(g_other_array, 0, g_array, 0, kBytes); }},
      {"cuMemsetD8", [] { return cuMemsetD8(g_one, 1, kBytes); }},
  };
}

Calls of_boxes() {
  static const auto flat = box<CUDA_MEMCPY2D>(false), flat_to_host = box<CUDA_MEMCPY2D>(true);
  static const auto deep = box<CUDA_MEMCPY3D>(false), deep_to_host = box<CUDA_MEMCPY3D>(true);
  static const auto peer = box<CUDA_MEMCPY3D_PEER>(false);
  return {
      {"cuMemcpy2D", [] { return cuMemcpy2D(&flat); }},
      {"cuMemcpy2DUnaligned to the host", [] { return cuMemcpy2DUnaligned(&flat_to_host); }},
      {"cuMemcpy2DAsync to the host", [] { return cuMemcpy2DAsync(&flat_to_host, g_stream); }},
      {"cuMemcpy3D", [] { return cuMemcpy3D(&deep); }},
      {"cuMemcpy3DAsync to the host", [] { return cuMemcpy3DAsync(&deep_to_host, g_stream); }},
      {"cuMemcpy3DPeer", [] { return cuMemcpy3DPeer(&peer); }},
      {"cuMemcpy3DPeerAsync", [] { return cuMemcpy3DPeerAsync(&peer, g_stream); }},
      {"nothing", [] { return cuMemcpy3D(nullptr); }},
      {"batch", batch},
      {"graph", graph},
  };
}

}  // namespace

int main() {
  if (!open_gpu()) {
    std::puts("error");
    return 1;
  }
  Calls calls = plain();
  calls.merge(of_boxes());
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const CUresult result = calls.at(line)();
    if (result == CUDA_SUCCESS) {
      std::printf("did %s\n", line.c_str());
    } else {
      std::printf("failed %s %d\n", line.c_str(), static_cast<int>(result));
    }
    std::fflush(stdout);
  }
  std::_Exit(0);
}
