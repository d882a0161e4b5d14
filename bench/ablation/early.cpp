#include "bench/ablation/early.h"

namespace switchyard::bench::ablation {

EarlyStart::EarlyStart(std::size_t bytes, const Work& work, const HostMemory& memory)
    : work_(work), model_(bytes, kChunk), image_(bytes, kChunk), copy_(&memory) {
  CU(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  arrived_.resize(model_.count());
  for (CUevent& event : arrived_) CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  model_.bring_all();
  work_.fill(model_);
  sum_ = work_.sum(model_);
  make_image();
  move_out(model_, copy_, {});
}

EarlyStart::~EarlyStart() {
  drop_image();
  for (CUevent event : arrived_) CU(cuEventDestroy, event);
  CU(cuStreamDestroy, stream_);
}

void EarlyStart::make_image() {
  host_ = make_host_handles(image_);
  if (host_.refusal) return;
  for (unsigned i = 0; i < image_.count(); ++i) image_.map_host(i, host_.handles[i]);
  image_.give_access();
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < model_.count() && result == CUDA_SUCCESS; ++i) {
    result = calls().cuMemcpyAsync(image_.address(i), model_.address(i), model_.bytes(i), stream_);
  }
  CU(cuStreamSynchronize, stream_);
  if (result == CUDA_SUCCESS) return;
  drop_image();
  host_.refusal = refused("cuMemcpyAsync", result);
}

void EarlyStart::drop_image() {
  for (unsigned i = 0; i < host_.handles.size(); ++i) {
    image_.unmap(i);
    CU(cuMemRelease, host_.handles[i]);
  }
  host_.handles.clear();
}

double EarlyStart::chunk_ms() {
  constexpr int kTimes = 20;
  model_.bring(0);
  const auto copy = [&] {
    CU(cuMemcpyHtoDAsync, model_.address(0), copy_.from(model_, 0), model_.bytes(0), stream_);
  };
  copy();
  CU(cuStreamSynchronize, stream_);
  const std::int64_t begun = now_ns();
  for (int i = 0; i < kTimes; ++i) copy();
  CU(cuStreamSynchronize, stream_);
  const double ms = ms_since(begun) / kTimes;
  model_.send_away(0);
  return ms;
}

unsigned EarlyStart::rounds_for(unsigned reads, double ms) {
  model_.bring(0);
  const unsigned rounds = work_.rounds_for(model_, reads, ms);
  model_.send_away(0);
  return rounds;
}

Started EarlyStart::all_arrived(const Load& load) {
  Started out;
  const std::int64_t begun = now_ns();
  move_in(model_, copy_, {});
  out.resident_ms = ms_since(begun);
  work_.launch_all(model_, load);
  work_.wait();
  out.first_ms = ms_since(begun);
  out.right = is_right(load);
  model_.send_all_away();
  return out;
}

Started EarlyStart::by_chunk(const Load& load) {
  Started out;
  const std::int64_t begun = now_ns();
  for (unsigned i = 0; i < model_.count(); ++i) {
    model_.bring(i);
    CU(cuMemcpyHtoDAsync, model_.address(i), copy_.from(model_, i), model_.bytes(i), stream_);
    CU(cuEventRecord, arrived_[i], stream_);
    CU(cuStreamWaitEvent, work_.stream(), arrived_[i], 0);
    work_.launch(model_, i, load);
  }
  CU(cuStreamSynchronize, stream_);
  out.resident_ms = ms_since(begun);
  work_.wait();
  out.first_ms = ms_since(begun);
  out.right = is_right(load);
  model_.send_all_away();
  return out;
}

Started EarlyStart::early(const Load& load) {
  Started out;
  const std::int64_t begun = now_ns();
  for (unsigned i = 0; i < model_.count(); ++i) model_.map_host(i, host_.handles[i]);
  model_.give_access();
  work_.launch_all(model_, load);
  work_.wait();
  out.first_ms = ms_since(begun);
  // No kernel runs: what comes next may be held back until all is in place.
  for (unsigned i = 0; i < model_.count(); ++i) {
    model_.unmap(i);
    model_.bring(i);
    CU(cuMemcpyAsync, model_.address(i), image_.address(i), model_.bytes(i), stream_);
  }
  CU(cuStreamSynchronize, stream_);
  out.resident_ms = ms_since(begun);
  out.right = is_right(load) && work_.sum(model_) == sum_;
  model_.send_all_away();
  return out;
}

}  // namespace switchyard::bench::ablation
