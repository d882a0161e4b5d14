#include "bench/ablation/pinning.h"

#include <algorithm>
#include <climits>
#include <vector>

#include "bench/ablation/moves.h"
#include "bench/ablation/print.h"
#include "bench/ablation/slabs.h"
#include "bench/ablation/threads.h"
#include "bench/ablation/work.h"

namespace switchyard::bench::ablation {
namespace {

constexpr unsigned kRun = 8;  // chunks that one call gives access to, as in the library

struct Took {
  double ms = 0;
  double make_ms = 0;
  double pin_ms = 0;
};

struct PinCell {
  const char* way;
  bool pinned;     // before it begins
  unsigned ahead;  // chunks that are made before the copies into them begin
  std::vector<Took> all = {};
  bool right = true;
};

Took bring_back(Chunks& model, Slabs& slabs, unsigned ahead) {
  Took took;
  const std::int64_t begun = now_ns();
  CUstream stream = nullptr;
  CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (unsigned first = 0; first < model.count();) {
    const unsigned end = first + std::min(ahead, model.count() - first);
    const std::int64_t makes = now_ns();
    for (unsigned at = first; at < end; at += kRun) model.bring_run(at, std::min(kRun, end - at));
    took.make_ms += ms_since(makes);
    for (; first < end; ++first) {
      const std::size_t offset = model.offset(first);
      const std::int64_t pins = now_ns();
      slabs.pin(offset / kSlab, true);
      took.pin_ms += ms_since(pins);
      CU(cuMemcpyHtoDAsync, model.address(first), slabs.at(offset), model.bytes(first), stream);
    }
  }
  CU(cuStreamSynchronize, stream);
  took.ms = ms_since(begun);
  CU(cuStreamDestroy, stream);
  return took;
}

void run(PinCell& cell, Slabs& slabs, std::size_t bytes, const Work& work, bool counts) {
  Chunks model(bytes, kChunk);
  model.bring_all();
  work.fill(model);
  const std::uint64_t sum = work.sum(model);
  slabs.pin_all(true);
  for (unsigned i = 0; i < model.count(); ++i) {
    CU(cuMemcpyDtoH, slabs.at(model.offset(i)), model.address(i), model.bytes(i));
  }
  model.send_all_away();
  slabs.pin_all(cell.pinned);
  const Took took = bring_back(model, slabs, cell.ahead);
  cell.right = cell.right && work.sum(model) == sum;
  if (counts) cell.all.push_back(took);
}

}  // namespace

int measure_pinning(int rounds, std::size_t bytes) {
  const Work work(load_module());
  Slabs slabs(bytes);
  PinCell cells[] = {
      {"pinned before, 8 chunks made ahead", true, 8},
      {"pinned before, 128 made ahead", true, 128},
      {"pinned for its copy, 8 made ahead", false, 8},
      {"pinned for its copy, 128 made ahead", false, 128},
      {"pinned for its copy, all made ahead", false, UINT_MAX},
  };
  for (int round = -1; round < rounds; ++round) {
    for (PinCell& cell : cells) run(cell, slabs, bytes, work, round >= 0);
  }
  for (PinCell& cell : cells) {
    std::sort(cell.all.begin(), cell.all.end(),
              [](const Took& a, const Took& b) { return a.ms < b.ms; });
    const Took& median = cell.all[cell.all.size() / 2];
    print_begin("pin", bytes, cell.way);
    std::printf(
        ", \"in_ms\": %.1f, \"least_ms\": %.1f, \"most_ms\": %.1f, \"make_ms\": %.1f, \"pin_ms\": "
        "%.1f, \"right\": %s}\n",
        median.ms, cell.all.front().ms, cell.all.back().ms, median.make_ms, median.pin_ms,
        cell.right ? "true" : "false");
  }
  Chunks model(bytes, kChunk);
  model.bring_all();
  work.fill(model);
  const std::uint64_t sum = work.sum(model);
  measure_threads(rounds, model, slabs);
  print_begin("threads", bytes, "contents");
  std::printf(", \"right\": %s}\n", work.sum(model) == sum ? "true" : "false");
  return 0;
}

}  // namespace switchyard::bench::ablation
