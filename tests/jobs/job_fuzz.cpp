// job_fuzz SEED STEPS: calls the driver at random, validly and not, and says what it answered.
//
// Each step prints "NUMBER CALL RESULT VALUE". All choices depend on the seed and on earlier
// results alone, never on an address. So two runs of one seed print the same as long as the driver
// answers the same, whoever stands between.
//
// Each of its mistakes is one that a real driver can answer by an error. It frees no host memory
// that work may still use, and passes no pointers that the driver would have to follow blindly.
// Work on a buffer goes to the buffer's own stream, or waits for everything before; so contents are
// determined, too.
#include <cstdlib>
#include <iterator>

#include "fuzz_buffers.h"

namespace {

using jobs::Buffer;
using jobs::FuzzBuffers;
using jobs::kHostBytes;
using jobs::kMiB;
using jobs::kNowhere;

// Headers from 13.0 on mean a newer call by the name.
CUresult create_context(CUcontext* out, unsigned flags, CUdevice device) {
#if CUDA_VERSION >= 13000
  return cuCtxCreate(out, nullptr, flags, device);
#else
  return cuCtxCreate(out, flags, device);
#endif
}

struct Mapped {
  CUdeviceptr at = 0;
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
};

class Fuzz : FuzzBuffers {
 public:
  explicit Fuzz(unsigned seed) : FuzzBuffers(seed) {}

  void step(int number) {
    using Call = void (Fuzz::*)();
    constexpr Call kCalls[] = {
        &Fuzz::alloc,      &Fuzz::alloc,       &Fuzz::alloc_async, &Fuzz::alloc_async,
        &Fuzz::pitch,      &Fuzz::managed,     &Fuzz::free,        &Fuzz::free,
        &Fuzz::free_async, &Fuzz::wrong_free,  &Fuzz::set,         &Fuzz::set,
        &Fuzz::set_2d,     &Fuzz::copy_in,     &Fuzz::copy_in,     &Fuzz::copy_across,
        &Fuzz::copy_2d,    &Fuzz::copy_async,  &Fuzz::copy_past,   &Fuzz::read,
        &Fuzz::read,       &Fuzz::array,       &Fuzz::free_array,  &Fuzz::copy_array,
        &Fuzz::map,        &Fuzz::unmap,       &Fuzz::wrong_map,   &Fuzz::range,
        &Fuzz::attribute,  &Fuzz::attributes,  &Fuzz::record,      &Fuzz::wait,
        &Fuzz::query,      &Fuzz::synchronise, &Fuzz::capture,     &Fuzz::capture_wrongly,
        &Fuzz::graph,      &Fuzz::pool,        &Fuzz::own_pool,    &Fuzz::nulls,
        &Fuzz::new_stream, &Fuzz::values,      &Fuzz::wrong_array, &Fuzz::contexts};
    number_ = number;
    (this->*kCalls[below(std::size(kCalls))])();
  }

  void end() {
    say("end", cuCtxSynchronize());
    while (!buffers_.empty()) drop(buffers_.size() - 1);
    say("last", cuCtxSynchronize());
  }

 private:
  void array() {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    shape.Width = one_in(6) ? size() : 1 + below(512);
    shape.Height = one_in(6) ? size() : below(512);
    shape.Depth = one_in(2) ? 0 : below(4);
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = one_in(6) ? 3 : 1;
    CUarray made = nullptr;
    if (say("array", cuArray3DCreate(&made, &shape)) == CUDA_SUCCESS) arrays_.push_back(made);
  }
  void wrong_array() {
    CUarray made = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR shape{.Width = std::size_t{1} << 50,
                                  .Height = 7,
                                  .Depth = 1,
                                  .Format = CU_AD_FORMAT_FLOAT,
                                  .NumChannels = 1,
                                  .Flags = 0};
    CUDA_ARRAY_DESCRIPTOR flat{
        .Width = 8, .Height = 8, .Format = CUarray_format{}, .NumChannels = 1};
    CUmipmappedArray levels = nullptr;
    say("arrayHuge", cuArray3DCreate(&made, &shape));
    say("arrayNull", cuArrayCreate(&made, nullptr));
    say("arrayOut", cuArrayCreate(nullptr, &flat));
    say("arrayFormat", cuArrayCreate(&made, &flat));
    say("mipmapNone", cuMipmappedArrayCreate(&levels, &shape, 0));
  }
  void free_array() {
    if (arrays_.empty()) return;
    const std::size_t which = below(arrays_.size());
    say("arrayDestroy", cuArrayDestroy(arrays_[which]));
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void copy_array() {
    if (arrays_.empty()) return;
    const CUarray of = arrays_[below(arrays_.size())];
    const std::size_t from = below(1024), bytes = below(4096);
    cuCtxSynchronize();
    say("toArray", cuMemcpyHtoA(of, from, host_, bytes), from + bytes);
    say("ofArray", cuMemcpyAtoH(host_, of, from, bytes), from + bytes);
    std::memset(host_, 7, kHostBytes);
  }

  void map() {
    Mapped made{.bytes = (1 + below(3)) * 2 * kMiB + (one_in(6) ? 1 : 0)};
    CUmemAllocationProp of{};
    of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    of.location.id = one_in(8) ? 77 : 0;
    CUmemAccessDesc access{of.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (say("create", cuMemCreate(&made.handle, made.bytes, &of, 0)) != CUDA_SUCCESS) return;
    say("reserve", cuMemAddressReserve(&made.at, made.bytes, 0, 0, 0));
    say("map", cuMemMap(made.at, made.bytes, 0, made.handle, 0));
    say("access", cuMemSetAccess(made.at, made.bytes, &access, 1));
    say("setMapped", cuMemsetD8(made.at, 3, made.bytes));
    say("release", cuMemRelease(made.handle));
    mapped_.push_back(made);
    if (mapped_.size() > 6) unmap();
  }
  void unmap() {
    if (mapped_.empty()) return;
    cuCtxSynchronize();
    const Mapped last = mapped_.back();
    mapped_.pop_back();
    say("freeMapped", cuMemAddressFree(last.at, last.bytes));
    say("unmap", cuMemUnmap(last.at, last.bytes));
    say("freeAddress", cuMemAddressFree(last.at, last.bytes));
    say("unmapAgain", cuMemUnmap(last.at, last.bytes));
  }
  void wrong_map() {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp of{};
    say("createNull", cuMemCreate(&handle, 2 * kMiB, nullptr, 0));
    say("createNothing", cuMemCreate(&handle, 2 * kMiB, &of, 0));
    say("mapWild", cuMemMap(kNowhere, 2 * kMiB, 0, 12345, 0));
    say("unmapWild", cuMemUnmap(kNowhere, 2 * kMiB));
    say("accessNull", cuMemSetAccess(kNowhere, 2 * kMiB, nullptr, 1));
    say("releaseWild", cuMemRelease(4242));
    say("retainWild", cuMemRetainAllocationHandle(&handle, &handle));
    say("propertiesWild", cuMemGetAllocationPropertiesFromHandle(&of, 4242));
    if (mapped_.empty()) return;
    const Mapped& of_it = mapped_[below(mapped_.size())];
    say("unmapPart", cuMemUnmap(of_it.at, of_it.bytes / 2 + 1));
    say("mapTwice", cuMemMap(of_it.at, of_it.bytes, 0, 4242, 0));
  }

  void range() {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    say("rangeWild", cuMemGetAddressRange(&base, &bytes, kNowhere));
    if (buffers_.empty()) return;
    const Buffer& of = any();
    const CUresult result = cuMemGetAddressRange(&base, &bytes, of.at + of.bytes / 2);
    say("range", result, result == CUDA_SUCCESS ? bytes + (of.at - base) : 0);
  }
  void attribute() {
    if (buffers_.empty()) return;
    const Buffer& of = any();
    std::uint64_t value = 0;
    constexpr CUpointer_attribute kAsked[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,          CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, static_cast<CUpointer_attribute>(999)};
    for (const CUpointer_attribute asked : kAsked) {
      const CUresult result = cuPointerGetAttribute(&value, asked, of.at);
      say("attribute", result, result == CUDA_SUCCESS ? value : 0);
    }
    say("attributeNull", cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of.at));
    say("attributeWild", cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kNowhere));
  }
  void attributes() {
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    std::uint64_t values[2] = {};
    void* out[] = {&values[0], &values[1]};
    say("attributesWild", cuPointerGetAttributes(2, asked, out, kNowhere));
    say("attributesNull", cuPointerGetAttributes(2, nullptr, out, kNowhere));
    say("attributesOut", cuPointerGetAttributes(2, asked, nullptr, kNowhere));
    if (buffers_.empty()) return;
    say("attributes", cuPointerGetAttributes(2, asked, out, any().at), values[1]);
    say("attributesNullOfOne", cuPointerGetAttributes(2, nullptr, out, any().at));
  }

  CUstream some_stream() {
    if (one_in(12)) return reinterpret_cast<CUstream>(std::uintptr_t{0xdead0});
    return one_in(6) ? nullptr : streams_[below(kStreams)];
  }
  void record() { say("record", cuEventRecord(events_[below(kEvents)], some_stream())); }
  void wait() { say("wait", cuStreamWaitEvent(some_stream(), events_[below(kEvents)], 0)); }
  void query() {
    const CUresult result = cuStreamQuery(some_stream());  // whether it is done is a race
    say("query", result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result);
    say("queryWild", cuEventQuery(reinterpret_cast<CUevent>(std::uintptr_t{0xdead0})));
  }
  void synchronise() {
    say("event", cuEventSynchronize(events_[below(kEvents)]));
    say("stream", cuStreamSynchronize(some_stream()));
    say("context", cuCtxSynchronize());
  }
  void new_stream() {
    const std::size_t which = below(kStreams);
    say("streamSync", cuStreamSynchronize(streams_[which]));
    for (const Buffer& buffer : buffers_) {
      if (buffer.stream == which && buffer.ordered) return;
    }
    say("streamDestroy", cuStreamDestroy(streams_[which]));
    say("streamCreate", cuStreamCreate(&streams_[which], CU_STREAM_NON_BLOCKING));
    say("streamFlags", cuStreamCreate(&wrong_, 0xffff));
  }
  void values() {
    if (buffers_.empty()) return;
    const Buffer& of = any();
    if (of.bytes < 8) return;
    say("write", cuStreamWriteValue32(own(of), of.at, 9, 0));
    say("waitValue", cuStreamWaitValue32(own(of), of.at, 9, CU_STREAM_WAIT_VALUE_EQ));
    say("writeWild", cuStreamWriteValue32(own(of), kNowhere, 9, 0));
    say("batchNull", cuStreamBatchMemOp(own(of), 1, nullptr, 0));
  }

  void capture() {
    if (buffers_.empty()) return;
    const Buffer& of = any();
    const CUstream stream = own(of);
    const auto mode =
        one_in(2) ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUgraph made = nullptr;
    CUgraphExec runs = nullptr;
    CUdeviceptr inside = 0;
    say("begin", cuStreamBeginCapture(stream, mode));
    say("capturedSet", cuMemsetD8Async(of.at, 4, of.bytes, stream));
    say("capturedAlloc", cuMemAllocAsync(&inside, 2 * kMiB, stream));
    say("capturedUse", cuMemsetD8Async(inside, 4, 2 * kMiB, stream));
    if (one_in(3)) managed();
    say("capturedFree", cuMemFreeAsync(inside, stream));
    if (say("endCapture", cuStreamEndCapture(stream, &made)) != CUDA_SUCCESS) return;
    if (say("instantiate", cuGraphInstantiate(&runs, made, 0)) == CUDA_SUCCESS) {
      say("launch", cuGraphLaunch(runs, stream));
      say("launched", cuStreamSynchronize(stream));
      say("execDestroy", cuGraphExecDestroy(runs));
    }
    say("graphDestroy", cuGraphDestroy(made));
  }
  // Calls that are not allowed while a stream is captured, or that spoil the capture. Not
  // cuMemAlloc and cuMemFree: memory that can leave is made and kept aside without the driver's
  // knowledge.
  void capture_wrongly() {
    const CUstream stream = streams_[below(kStreams)];
    CUgraph made = nullptr;
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR shape{
        .Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    say("endNothing", cuStreamEndCapture(stream, &made));
    say("beginGlobal", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    switch (below(5)) {
      case 0:
        say("capturedSync", cuStreamSynchronize(stream));
        break;
      case 1:
        say("capturedArray", cuArrayCreate(&array, &shape));
        break;
      case 2:
        managed();
        break;
      case 3:
        say("capturedHost", cuMemFreeHost(host_));
        break;
      default:
        say("beginAgain", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        break;
    }
    const CUresult ended = cuStreamEndCapture(stream, &made);
    say("endWrong", ended);
    if (ended == CUDA_SUCCESS && made != nullptr) say("graphDestroy", cuGraphDestroy(made));
    if (array != nullptr) say("arrayDestroy", cuArrayDestroy(array));
  }
  void graph() {
    CUgraph made = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec runs = nullptr;
    CUDA_MEMSET_NODE_PARAMS params{};
    params.elementSize = one_in(4) ? 3 : 1;
    params.width = 1024;
    params.height = 1;
    params.dst = !buffers_.empty() && !one_in(4) ? any().at : kNowhere;
    CUcontext context = nullptr;
    cuCtxGetCurrent(&context);
    say("graphCreate", cuGraphCreate(&made, 0));
    say("setNode", cuGraphAddMemsetNode(&node, made, nullptr, 0, &params, context));
    say("setNull", cuGraphAddMemsetNode(&node, made, nullptr, 0, nullptr, context));
    say("nodeNull", cuGraphAddHostNode(&node, made, nullptr, 0, nullptr));
    say("instantiateNull", cuGraphInstantiate(&runs, nullptr, 0));
    say("launchNull", cuGraphLaunch(nullptr, nullptr));
    say("nodesNull", cuGraphGetNodes(made, nullptr, nullptr));
    say("graphDestroy", cuGraphDestroy(made));
  }
  void pool() {
    cuuint64_t bytes = one_in(3) ? 64 * kMiB : 0;
    say("threshold", cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
    say("poolNull", cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr));
    say("poolWrong", cuMemPoolGetAttribute(pool_, static_cast<CUmemPool_attribute>(999), &bytes));
    say("poolOut", cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, nullptr));
    say("accessNull", cuMemPoolSetAccess(pool_, nullptr, 1 + below(3)));
    say("trim", cuMemPoolTrimTo(pool_, below(3) * 32 * kMiB));
    say("trimNull", cuMemPoolTrimTo(nullptr, 0));
  }
  void own_pool() {
    CUmemoryPool made = nullptr;
    CUmemPoolProps of{};
    say("poolCreateNull", cuMemPoolCreate(&made, nullptr));
    say("poolCreateNothing", cuMemPoolCreate(&made, &of));
    of.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (say("poolCreate", cuMemPoolCreate(&made, &of)) != CUDA_SUCCESS) return;
    const CUstream stream = streams_[below(kStreams)];
    CUdeviceptr at = 0;
    const std::size_t bytes = size();
    if (say("fromPool", cuMemAllocFromPoolAsync(&at, bytes, made, stream)) == CUDA_SUCCESS) {
      say("setPool", cuMemsetD8Async(at, 1, bytes, stream));
      if (one_in(2)) say("poolGone", cuMemPoolDestroy(made));
      say("freePool", cuMemFreeAsync(at, stream));
      say("freePoolSync", cuStreamSynchronize(stream));
    }
    const CUresult again = cuMemPoolDestroy(made);
    say("poolDestroy", again);
    say("fromPoolGone", cuMemAllocFromPoolAsync(&at, 4096, nullptr, stream));
  }
  // Pointers that every driver looks at before it follows them.
  void nulls() {
    Buffer none{};
    std::size_t bytes = 0;
    say("allocOut", cuMemAlloc(nullptr, below(4) * kMiB));
    say("asyncOut", cuMemAllocAsync(nullptr, below(4) * kMiB, streams_[0]));
    say("pitchOut", cuMemAllocPitch(nullptr, &bytes, 16, 16, 4));
    say("pitchRow", cuMemAllocPitch(&none.at, nullptr, 16, 4096 * 1024, 4));
    say("createOut", cuMemCreate(nullptr, 2 * kMiB, nullptr, 0));
    say("reserveOut", cuMemAddressReserve(nullptr, 2 * kMiB, 0, 0, 0));
    say("retainOut", cuMemRetainAllocationHandle(nullptr, nullptr));
    say("poolOut", cuDeviceGetDefaultMemPool(nullptr, 0));
    say("poolDevice", cuDeviceGetMemPool(&pool_out_, 77));
    say("ipcOut", cuIpcGetMemHandle(nullptr, kNowhere));
    say("copyNull", cuMemcpy2D(nullptr));
    say("hostNull", cuMemFreeHost(nullptr));
    say("unregisterNull", cuMemHostUnregister(nullptr));
    say("captureOut", cuStreamIsCapturing(nullptr, nullptr));
    say("info", cuMemGetInfo(nullptr, nullptr));
  }
  // One that is made, used and ended, with a stream of it in a capture now and then.
  void contexts() {
    CUcontext made = nullptr;
    CUcontext popped = nullptr;
    say("contextNull", create_context(nullptr, 0, 0));
    say("contextDevice", create_context(&made, 0, 77));
    if (!one_in(3) || say("contextCreate", create_context(&made, 0, 0)) != CUDA_SUCCESS) return;
    CUdeviceptr at = 0;
    const std::size_t bytes = size();
    if (say("contextAlloc", cuMemAlloc(&at, bytes)) == CUDA_SUCCESS) {
      say("contextSet", cuMemsetD8(at, 1, bytes));
    }
    CUstream stream = nullptr;
    say("contextStream", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (one_in(2)) say("contextPop", cuCtxPopCurrent(&popped));
    say("contextDestroy", cuCtxDestroy(made));
    say("contextGone", cuCtxDestroy(made));
    if (at != 0) say("contextFree", cuMemFree(at));
  }

  std::vector<Mapped> mapped_;
  std::vector<CUarray> arrays_;
  CUstream wrong_ = nullptr;
  CUmemoryPool pool_out_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return 3;
  }
  const int steps = std::atoi(argv[2]);
  Fuzz fuzz(static_cast<unsigned>(std::atoi(argv[1])));
  for (int i = 0; i < steps; ++i) fuzz.step(i);
  fuzz.end();
  return 0;
}
