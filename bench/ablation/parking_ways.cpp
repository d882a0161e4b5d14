// The ways of parking, each measured, and what the driver's calls cost.
#include <algorithm>
#include <climits>

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
  Chunks model(bytes, kChunk);
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
      "\"unmap_ms\": %.2f, \"release_ms\": %.2f",
      key, static_cast<double>(bytes) / median.ms * 1e-6, key, median.ms, median.make_ms,
      median.wait_ms, median.unmap_ms, median.release_ms);
  if (median.refused != CUDA_SUCCESS) {
    std::printf(", \"one_unmap_refused\": %d", static_cast<int>(median.refused));
  }
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
      {"given up as it arrives", {}},
      {"given up last", {.out_last = true, .back_last = true}},
      {"one unmap for 8", {.together = 8, .back_last = true}},
      {"one unmap for 8, given up last", {.together = 8, .out_last = true, .back_last = true}},
      {"one unmap for all, given up last",
       {.together = UINT_MAX, .out_last = true, .back_last = true}},
      {"pieces of 32 MiB, given up last",
       {.piece = kChunk, .together = 8, .out_last = true, .back_last = true}},
      {"pieces of 512 MiB, given up last",
       {.piece = 16 * kChunk, .together = 8, .out_last = true, .back_last = true}},
      {"pieces kept", {.kept = true}},
      {"pieces kept, one unmap for 8, given up last",
       {.together = 8, .kept = true, .out_last = true}},
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
