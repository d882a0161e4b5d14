// Stream capture: what is put on a capturing stream becomes nodes of a graph.
#include <pthread.h>

#include <algorithm>

#include "graph.h"

namespace fakecuda {

struct Capture {
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  pthread_t thread{};
  unsigned long long id = 0;
  bool valid = true;
  bool own_graph = true;
  std::set<Stream*> streams;
};

namespace {

std::set<Capture*>& captures() {
  static auto* all = new std::set<Capture*>;
  return *all;
}

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
unsigned long long next_capture = 1;

bool own_thread(const Capture* capture) {
  return pthread_equal(capture->thread, pthread_self()) != 0;
}

Capture* blocking_capture(Context* context) {
  for (Capture* capture : captures()) {
    for (Stream* stream : capture->streams) {
      if (stream->context == context && stream->blocking()) return capture;
    }
  }
  return nullptr;
}

void join(Capture* capture, Stream* stream, const std::vector<GraphNode*>& tail) {
  stream->capture = capture;
  capture->streams.insert(stream);
  for (GraphNode* node : tail) {
    auto& mine = stream->capture_tail;
    if (std::find(mine.begin(), mine.end(), node) == mine.end()) mine.push_back(node);
  }
}

void end(Capture* capture) {
  captures().erase(capture);
  for (Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  capture->streams.clear();
}

// Every node that nothing follows must be at the origin's end.
bool unjoined(const Capture* capture) {
  std::set<GraphNode*> loose(capture->graph->nodes.begin(), capture->graph->nodes.end());
  for (GraphNode* node : capture->graph->nodes) {
    for (GraphNode* before : node->before) loose.erase(before);
  }
  for (GraphNode* node : capture->origin->capture_tail) loose.erase(node);
  return capture->own_graph && !loose.empty();
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, Graph* graph,
               std::vector<GraphNode*> tail) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream = nullptr;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto* capture = kept(new Capture);  // never freed: events may still name it
  capture->own_graph = graph == nullptr;
  capture->graph = graph ? graph : new_graph();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->id = next_capture++;
  captures().insert(capture);
  join(capture, stream, tail);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult check_capture(Stream* stream) {
  if (stream->capture) {
    return stream->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (!stream->legacy) return CUDA_SUCCESS;
  Capture* capture = blocking_capture(stream->context);
  if (!capture) return CUDA_SUCCESS;
  capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult add_to_capture(Stream* stream, const Work& work) {
  GraphNode* node = add_node(stream->capture->graph, work, stream->capture_tail);
  stream->capture_tail = {node};
  return CUDA_SUCCESS;
}

CUresult refuse_unsafe() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool refused = false;
  for (Capture* capture : captures()) {
    const bool other = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                       thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    const bool own = own_thread(capture) && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!own && !other) continue;
    capture->valid = false;
    refused = true;
  }
  return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult refuse_wait(Stream* stream) {
  if (stream->capture) {
    stream->capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return check_capture(stream);
}

CUresult refuse_wait(Context* context) {
  for (Capture* capture : captures()) {
    for (Stream* stream : capture->streams) {
      if (stream->context != context) continue;
      capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

void record_in_capture(Stream* stream, Event* event) {
  event->capture = stream->capture;
  event->captured = stream->capture_tail;
  event->recorded = true;
}

CUresult wait_in_capture(Stream* stream, Event* event) {
  if (event->capture && !captures().count(event->capture)) return CUDA_ERROR_INVALID_VALUE;
  if (!event->capture) {  // recorded outside: the capture can't depend on it
    if (!event->op) return CUDA_SUCCESS;
    stream->capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream->legacy) {
    event->capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->valid = event->capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!event->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  join(event->capture, stream, event->captured);
  return CUDA_SUCCESS;
}

namespace {

CUstreamCaptureStatus status_of(Stream* stream) {
  if (!stream->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream->capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** tail, std::size_t* count) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult found = find_stream(handle, &stream)) return found;
  if (stream->legacy && blocking_capture(stream->context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = status_of(stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id) *id = stream->capture->id;
  if (graph) *graph = reinterpret_cast<CUgraph>(stream->capture->graph);
  if (tail) *tail = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  if (count) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

CUresult update(CUstream handle, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, &stream)) return found;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  for (std::size_t i = 0; i < count; ++i) {
    stream->capture_tail.push_back(reinterpret_cast<GraphNode*>(nodes[i]));
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, mode, nullptr, {});
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}

#if CUDA_VERSION >= 12030
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                     const CUgraphEdgeData*, std::size_t count,
                                     CUstreamCaptureMode mode) {
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  auto* first = reinterpret_cast<GraphNode* const*>(nodes);
  return begin(stream, mode, reinterpret_cast<Graph*>(graph), {first, first + count});
}
#endif

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  Capture* capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  *out = nullptr;
  if (capture->origin != stream) {
    capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !own_thread(capture)) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult status = CUDA_SUCCESS;
  if (!capture->valid) {
    status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (unjoined(capture)) {
    status = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  end(capture);
  if (status == CUDA_SUCCESS) {
    *out = reinterpret_cast<CUgraph>(capture->graph);
  } else if (capture->own_graph) {
    forget(capture->graph);
  }
  return status;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return info(stream, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return info(stream, status, id, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** tail, std::size_t* count) {
  return info(stream, status, id, graph, tail, count);
}

#if CUDA_VERSION >= 12030
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** tail,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  if (edges) *edges = nullptr;
  return info(stream, status, id, graph, tail, count);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData*, std::size_t count,
                                              unsigned flags) {
  return update(stream, nodes, count, flags);
}
#endif

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, std::size_t count,
                                           unsigned flags) {
  return update(stream, nodes, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_MAY_FAIL();
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
