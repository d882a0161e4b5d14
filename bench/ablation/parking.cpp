#include "bench/ablation/parking.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace switchyard::bench::ablation {
namespace {

constexpr unsigned kDepth = 4;
constexpr unsigned kMostStreams = 2;

void add_ms(double& to, std::int64_t begun_ns) { to += ms_since(begun_ns); }

CUmemAllocationProp memory_on(int gpu) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu};
  return properties;
}

void let_first_gpu_use(CUdeviceptr address, std::size_t bytes) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuMemSetAccess, address, bytes, &access, 1);
}

// A number that one thread raises and another waits for.
class Reached {
 public:
  void raise(unsigned to) {
    const std::lock_guard hold(lock_);
    number_ = to;
    changed_.notify_all();
  }
  void wait_for(unsigned number) {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [&] { return number_ >= number; });
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  unsigned number_ = 0;
};

// A thread in the same context, until the end of its scope.
class Helper {
 public:
  template <typename Act>
  Helper(bool starts, Act act) {
    if (!starts) return;
    CUcontext context = nullptr;
    CU(cuCtxGetCurrent, &context);
    thread_ = std::thread([=] {
      CU(cuCtxSetCurrent, context);
      act();
    });
  }
  ~Helper() { join(); }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

// Streams that take turns, and an event behind each copy in flight.
class Copies {
 public:
  explicit Copies(unsigned streams) : streams_(std::min(streams, kMostStreams)) {
    for (unsigned i = 0; i < streams_; ++i) {
      CU(cuStreamCreate, &stream_[i], CU_STREAM_NON_BLOCKING);
    }
    for (CUevent& event : events_) CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }
  ~Copies() {
    for (CUevent event : events_) CU(cuEventDestroy, event);
    for (unsigned i = 0; i < streams_; ++i) CU(cuStreamDestroy, stream_[i]);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  void begin(unsigned at, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) const {
    CUstream stream = stream_[at % streams_];
    CU(cuMemcpyDtoDAsync, to, from, bytes, stream);
    CU(cuEventRecord, events_[at % kDepth], stream);
  }
  void wait(unsigned at) const { CU(cuEventSynchronize, events_[at % kDepth]); }

 private:
  unsigned streams_;
  CUstream stream_[kMostStreams] = {};
  CUevent events_[kDepth] = {};
};

}  // namespace

bool has_neighbour() {
  int gpus = 0;
  int reaches = 0;
  CU(cuDeviceGetCount, &gpus);
  if (gpus > 1) CU(cuDeviceCanAccessPeer, &reaches, 0, 1);
  return reaches != 0;
}

Neighbour::Neighbour(std::size_t bytes, const ParkWay& way)
    : bytes_(bytes), way_(way), handles_((bytes + way.piece - 1) / way.piece) {
  CU(cuMemAddressReserve, &address_, bytes_, 0, 0, 0);
  if (way_.kept) make_all();
}

Neighbour::~Neighbour() {
  for (unsigned i = 0; i < count(); ++i) give_up(i);
  CU(cuMemAddressFree, address_, bytes_);
}

std::size_t Neighbour::bytes_of(unsigned at) const {
  return std::min(way_.piece, bytes_ - at * way_.piece);
}

void Neighbour::make(unsigned first) {
  static const CUmemAllocationProp properties = memory_on(1);
  std::size_t bytes = 0;
  for (unsigned i = first; i < std::min(first + way_.together, count()); ++i) {
    CU(cuMemCreate, &handles_[i], bytes_of(i), &properties, 0);
    CU(cuMemMap, at(i * way_.piece), bytes_of(i), 0, handles_[i], 0);
    bytes += bytes_of(i);
  }
  let_first_gpu_use(at(first * way_.piece), bytes);
}

void Neighbour::make_all() {
  for (unsigned i = 0; i < count(); i += way_.together) make(i);
}

void Neighbour::give_up(unsigned at) {
  if (handles_[at] == 0) return;
  CU(cuMemUnmap, address_ + at * way_.piece, bytes_of(at));
  CU(cuMemRelease, handles_[at]);
  handles_[at] = 0;
}

ParkTook park(Chunks& chunks, Neighbour& neighbour, const ParkWay& way) {
  ParkTook took;
  const std::int64_t begun = now_ns();
  const Copies copies(way.streams);
  Reached made, copied;
  Helper maker(way.ahead && !way.kept, [&] {
    for (unsigned i = 0; i < neighbour.count(); i += way.together) {
      neighbour.make(i);
      made.raise(std::min(i + way.together, neighbour.count()));
    }
  });
  Helper giver(way.behind, [&] {
    for (unsigned i = 0; i < chunks.count(); ++i) {
      copied.wait_for(i + 1);
      chunks.send_away(i);
    }
  });
  unsigned landed = 0;
  const auto land = [&] {
    std::int64_t since = now_ns();
    copies.wait(landed);
    add_ms(took.wait_ms, since);
    since = now_ns();
    if (!way.behind) chunks.send_away(landed);
    add_ms(took.give_ms, since);
    copied.raise(++landed);
  };
  unsigned pieces = 0;
  for (unsigned i = 0; i < chunks.count(); ++i) {
    if (i - landed == kDepth) land();
    const std::int64_t since = now_ns();
    if (chunks.offset(i) >= pieces * way.piece) {
      if (way.ahead && !way.kept) made.wait_for(pieces + 1);
      if (!way.ahead && !way.kept) neighbour.make(pieces);
      pieces += way.ahead || way.kept ? 1 : way.together;
    }
    add_ms(took.make_ms, since);
    copies.begin(i, neighbour.at(chunks.offset(i)), chunks.address(i), chunks.bytes(i));
  }
  while (landed < chunks.count()) land();
  giver.join();
  maker.join();
  took.ms = ms_since(begun);
  return took;
}

ParkTook bring_back(Chunks& chunks, Neighbour& neighbour, const ParkWay& way) {
  ParkTook took;
  const std::int64_t begun = now_ns();
  const Copies copies(way.streams);
  const auto give_up_before = [&](std::size_t offset, unsigned& given) {
    while (!way.kept && given < neighbour.count() && (given + 1) * way.piece <= offset) {
      neighbour.give_up(given++);
    }
  };
  Reached copied;
  Helper giver(way.behind, [&] {
    unsigned given = 0;
    for (unsigned i = 0; i < chunks.count(); ++i) {
      copied.wait_for(i + 1);
      give_up_before(chunks.offset(i) + chunks.bytes(i), given);
    }
  });
  unsigned landed = 0;
  unsigned given = 0;
  const auto land = [&] {
    std::int64_t since = now_ns();
    copies.wait(landed);
    add_ms(took.wait_ms, since);
    since = now_ns();
    const std::size_t end = chunks.offset(landed) + chunks.bytes(landed);
    if (!way.behind && way.as_arrived) give_up_before(end, given);
    add_ms(took.give_ms, since);
    copied.raise(++landed);
  };
  for (unsigned i = 0; i < chunks.count(); ++i) {
    if (i - landed == kDepth) land();
    const std::int64_t since = now_ns();
    chunks.bring(i);
    add_ms(took.make_ms, since);
    copies.begin(i, chunks.address(i), neighbour.at(chunks.offset(i)), chunks.bytes(i));
  }
  while (landed < chunks.count()) land();
  giver.join();
  const std::int64_t since = now_ns();
  // The last piece may be a short one.
  for (unsigned i = 0; !way.kept && i < neighbour.count(); ++i) neighbour.give_up(i);
  add_ms(took.give_ms, since);
  took.ms = ms_since(begun);
  return took;
}

CallCosts call_costs(int gpu, std::size_t bytes) {
  constexpr unsigned kTimes = 16;
  const CUmemAllocationProp properties = memory_on(gpu);
  CallCosts out;
  for (unsigned i = 0; i < kTimes; ++i) {
    CUdeviceptr at = 0;
    Handle handle = 0;
    const auto timed = [](double& to, auto call) {
      const std::int64_t begun = now_ns();
      call();
      to += ms_since(begun) * 1e3 / kTimes;
    };
    timed(out.reserve, [&] { CU(cuMemAddressReserve, &at, bytes, 0, 0, 0); });
    timed(out.create, [&] { CU(cuMemCreate, &handle, bytes, &properties, 0); });
    timed(out.map, [&] { CU(cuMemMap, at, bytes, 0, handle, 0); });
    timed(out.access, [&] { let_first_gpu_use(at, bytes); });
    timed(out.unmap, [&] { CU(cuMemUnmap, at, bytes); });
    timed(out.release, [&] { CU(cuMemRelease, handle); });
    timed(out.unreserve, [&] { CU(cuMemAddressFree, at, bytes); });
  }
  return out;
}

}  // namespace switchyard::bench::ablation
