// The ways of parking, each measured, and what the driver's calls cost.
#include <algorithm>

#include "bench/ablation/parking.h"
#include "bench/ablation/print.h"
#include "bench/ablation/work.h"

namespace switchyard::bench::ablation {
namespace {

struct ParkCell {
  const char* way;
  ParkWay how = {};
  std::vector<ParkTook> out = {};
  std::vector<ParkTook> back = {};
  bool right = true;
};

void run(ParkCell& cell, std::size_t bytes, const Work& work, bool counts) {
  Chunks model(bytes, cell.how.chunk);
  model.bring_all();
  work.fill(model);
  const std::uint64_t sum = work.sum(model);
  Neighbour neighbour(bytes, cell.how);
  const ParkTook out = park(model, neighbour, cell.how);
  const ParkTook back = bring_back(model, neighbour, cell.how);
  cell.right = cell.right && work.sum(model) == sum;
  if (!counts) return;
  cell.out.push_back(out);
  cell.back.push_back(back);
}

void print_took(const char* key, std::size_t bytes, const std::vector<ParkTook>& all) {
  std::vector<ParkTook> sorted = all;
  std::sort(sorted.begin(), sorted.end(),
            [](const ParkTook& a, const ParkTook& b) { return a.ms < b.ms; });
  const ParkTook& median = sorted[sorted.size() / 2];
  std::printf(
      ", \"%s_gb_s\": %.1f, \"%s_ms\": %.2f, \"make_ms\": %.2f, \"wait_ms\": %.2f, "
      "\"give_ms\": %.2f",
      key, static_cast<double>(bytes) / median.ms * 1e-6, key, median.ms, median.make_ms,
      median.wait_ms, median.give_ms);
}

void print_call_costs() {
  for (const int gpu : {0, 1}) {
    for (const std::size_t bytes : {2 * kMiB, kChunk, 256 * kMiB}) {
      const CallCosts us = call_costs(gpu, bytes);
      print_begin("calls", bytes, gpu == 0 ? "its own memory" : "the other GPU's");
      std::printf(
          ", \"reserve_us\": %.1f, \"create_us\": %.1f, \"map_us\": %.1f, \"access_us\": %.1f, "
          "\"unmap_us\": %.1f, \"release_us\": %.1f, \"unreserve_us\": %.1f}\n",
          us.reserve, us.create, us.map, us.access, us.unmap, us.release, us.unreserve);
    }
  }
}

}  // namespace

int measure_parking(int rounds, std::size_t bytes) {
  const Work work(load_module());
  if (!has_neighbour()) {
    print_begin("park", bytes, "any");
    std::printf(", \"unsupported\": \"no other GPU that GPU 0 reaches\"}\n");
    return 0;
  }
  ParkCell cells[] = {
      {"pieces of 32 MiB", {.as_arrived = false}},
      {"given up as it arrives", {}},
      {"pieces of 64 MiB", {.piece = 64 * kMiB}},
      {"pieces of 128 MiB", {.piece = 128 * kMiB}},
      {"pieces of 256 MiB", {.piece = 256 * kMiB}},
      {"pieces of 256 MiB, given up last", {.piece = 256 * kMiB, .as_arrived = false}},
      {"pieces of 512 MiB", {.piece = 512 * kMiB}},
      {"access to 8 at once", {.together = 8}},
      {"chunks of 16 MiB", {.chunk = 16 * kMiB, .piece = 16 * kMiB}},
      {"chunks of 64 MiB", {.chunk = 64 * kMiB, .piece = 64 * kMiB}},
      {"chunks of 256 MiB", {.chunk = 256 * kMiB, .piece = 256 * kMiB}},
      {"2 streams", {.streams = 2}},
      {"2 streams, pieces of 256 MiB", {.piece = 256 * kMiB, .streams = 2}},
      {"made ahead", {.ahead = true}},
      {"made ahead, pieces of 256 MiB", {.piece = 256 * kMiB, .ahead = true}},
      {"given up behind, pieces of 256 MiB", {.piece = 256 * kMiB, .behind = true}},
      {"both, pieces of 256 MiB", {.piece = 256 * kMiB, .ahead = true, .behind = true}},
      {"both", {.ahead = true, .behind = true}},
      {"pieces kept", {.kept = true}},
      {"pieces kept, 2 streams", {.streams = 2, .kept = true}},
      {"pieces kept, given up behind", {.kept = true, .behind = true}},
  };
  print_call_costs();
  for (int round = -1; round < rounds; ++round) {
    for (ParkCell& cell : cells) run(cell, bytes, work, round >= 0);
  }
  for (const ParkCell& cell : cells) {
    print_begin("park", bytes, cell.way);
    print_took("out", bytes, cell.out);
    std::printf(", \"back\": {\"right\": %s", cell.right ? "true" : "false");
    print_took("back", bytes, cell.back);
    std::printf("}}\n");
  }
  return 0;
}

}  // namespace switchyard::bench::ablation
