// Experiments on the way in which memory is swapped. They try chunk size, pools, pipelining, early
// start, warm processes and turns, each against the alternatives, for models of some sizes.
// It makes the calls of shim/swap/transfer/pipeline.h itself, because there the chunk's size is
// fixed when it is built.
//
//   swap_ablation [rounds] [starts] [MiB of a model]...
//   swap_ablation --park [rounds] [MiB]
//   swap_ablation --pin [rounds] [MiB]
//
// The second form moves memory to another GPU and back, instead. The third brings memory back from
// host memory that must be pinned first.
//
// Prints a line of JSON for each cell: its part, the model's MiB, the way, and the figures of each
// round. Ways take turns within a round.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/ablation/early.h"
#include "bench/ablation/moves.h"
#include "bench/ablation/pair.h"
#include "bench/ablation/parking.h"
#include "bench/ablation/pinning.h"
#include "bench/ablation/print.h"
#include "bench/ablation/starts.h"
#include "bench/ablation/work.h"

namespace {

using namespace switchyard::bench;
using namespace switchyard::bench::ablation;

void print_list(const char* key, const std::vector<double>& values) {
  std::printf(", \"%s\": [", key);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::printf("%s%.4f", i == 0 ? "" : ", ", values[i]);
  }
  std::printf("]");
}

// --- chunk size, pools, pipelining ---

struct Cell {
  const char* part;
  const char* way;
  std::size_t chunk = kChunk;  // 0: all in one
  const HostMemory* memory = nullptr;
  Way how = {};
  std::vector<double> out_ms = {};
  std::vector<double> in_ms = {};
  bool right = true;
};

void run(Cell& cell, std::size_t bytes, const Work& work, bool counts) {
  Chunks model(bytes, cell.chunk != 0 ? cell.chunk : bytes);
  model.bring_all();
  work.fill(model);
  const std::uint64_t sum = work.sum(model);
  Copy copy(cell.memory);
  const double out = move_out(model, copy, cell.how);
  if (cell.how.keeps_device) work.clear(model);  // so that its return shows
  const double in = move_in(model, copy, cell.how);
  cell.right = cell.right && work.sum(model) == sum;
  if (!counts) return;
  cell.out_ms.push_back(out);
  cell.in_ms.push_back(in);
}

void moves(std::size_t bytes, int rounds, const Work& work, const HostMemory& pinned,
           const HostMemory& pageable) {
  Cell cells[] = {
      {"default", "default", kChunk, &pinned},
      {"chunk", "2 MiB", 2 * kMiB, &pinned},
      {"chunk", "8 MiB", 8 * kMiB, &pinned},
      {"chunk", "128 MiB", 128 * kMiB, &pinned},
      {"chunk", "all in one", 0, &pinned},
      {"pool", "pinned when needed", kChunk, nullptr},
      {"pool", "pageable", kChunk, &pageable},
      {"device", "kept", kChunk, &pinned, {.keeps_device = true}},
      {"pipeline", "one after the other", kChunk, &pinned, {.overlaps = false}},
  };
  for (int round = -1; round < rounds; ++round) {
    for (Cell& cell : cells) run(cell, bytes, work, round >= 0);
  }
  for (const Cell& cell : cells) {
    print_begin(cell.part, bytes, cell.way);
    print_list("out_ms", cell.out_ms);
    print_list("in_ms", cell.in_ms);
    std::printf(", \"right\": %s}\n", cell.right ? "true" : "false");
  }
}

// --- early start ---

struct Order {
  const char* way;
  Started (EarlyStart::*run)(const Load&);
  std::vector<double> first_ms = {};
  std::vector<double> resident_ms = {};
  bool right = true;
};

void early_start(std::size_t bytes, int rounds, const Work& work, const HostMemory& pinned) {
  EarlyStart model(bytes, work, pinned);
  if (model.refusal()) {
    print_begin("early", bytes, "early");
    std::printf(", \"unsupported\": \"%s\"}\n", model.refusal()->c_str());
  }
  const double chunk_ms = model.chunk_ms();
  for (const unsigned reads : {1u, 8u}) {
    for (const double ratio : {0.25, 1.0, 4.0}) {
      const Load load{reads, model.rounds_for(reads, ratio * chunk_ms)};
      std::vector<Order> orders = {{"all arrived", &EarlyStart::all_arrived},
                                   {"by chunk", &EarlyStart::by_chunk}};
      if (!model.refusal()) orders.push_back({"early", &EarlyStart::early});
      for (int round = -1; round < rounds; ++round) {
        for (Order& order : orders) {
          const Started started = (model.*order.run)(load);
          order.right = order.right && started.right;
          if (round < 0) continue;
          order.first_ms.push_back(started.first_ms);
          order.resident_ms.push_back(started.resident_ms);
        }
      }
      for (const Order& order : orders) {
        print_begin("early", bytes, order.way);
        std::printf(", \"reads\": %u, \"ratio\": %.2f, \"rounds\": %u, \"chunk_ms\": %.4f", reads,
                    ratio, load.rounds, chunk_ms);
        print_list("first_ms", order.first_ms);
        print_list("resident_ms", order.resident_ms);
        std::printf(", \"right\": %s}\n", order.right ? "true" : "false");
      }
    }
  }
}

// --- warm processes ---

void starts(std::size_t bytes, int rounds, const Work& work, const HostMemory& pinned) {
  const int file = model_file(bytes);
  if (file < 0) {
    print_begin("start", bytes, "new process");
    std::printf(", \"unsupported\": \"no file in memory\"}\n");
    return;
  }
  std::vector<double> warm, stop, start;
  Chunks model(bytes, kChunk);
  model.bring_all();
  work.fill(model);
  Copy copy(&pinned);
  for (int round = 0; round < rounds; ++round) {
    move_out(model, copy, {});
    warm.push_back(warm_ms(model, copy, work));
    const StopAndStart took = stop_and_start(file, bytes);
    stop.push_back(took.stop_ms);
    start.push_back(took.start_ms);
  }
  work.take_sum();
  print_begin("start", bytes, "warm");
  print_list("first_ms", warm);
  std::printf("}\n");
  print_begin("start", bytes, "new process");
  print_list("stop_ms", stop);
  print_list("first_ms", start);
  std::printf("}\n");
}

// --- two processes that take turns ---

struct PairWay {
  const char* way;
  std::size_t chunk;
  bool gives_back;
  bool makes;
  std::vector<double> out_ms = {};
  std::vector<double> in_ms = {};
};

void pairs(std::size_t bytes, int rounds, const HostMemory& pinned) {
  Pair pair(bytes, pinned);
  PairWay ways[] = {
      {"copies alone", kChunk, false, false},
      {"the one gives back", kChunk, true, false},
      {"the other makes its own", kChunk, false, true},
      {"both", kChunk, true, true},
      {"both, chunks of 64 MiB", 64 * kMiB, true, true},
      {"both, chunks of 128 MiB", 128 * kMiB, true, true},
  };
  for (int round = -1; round < rounds; ++round) {
    for (PairWay& way : ways) {
      const Turn turn = pair.turn(way.chunk, way.gives_back, way.makes);
      if (round < 0) continue;
      way.out_ms.push_back(turn.out_ms);
      way.in_ms.push_back(turn.in_ms);
    }
  }
  for (const PairWay& way : ways) {
    print_begin("pair", bytes, way.way);
    print_list("out_ms", way.out_ms);
    print_list("in_ms", way.in_ms);
    std::printf("}\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--new-process") {
    return be_new_process(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10));
  }
  if (argc == 3 && std::string(argv[1]) == "--leaver") {
    return be_leaver(std::strtoull(argv[2], nullptr, 10));
  }
  const std::string form = argc >= 2 ? argv[1] : "";
  if (form == "--park" || form == "--pin") {
    const int times = argc > 2 ? std::atoi(argv[2]) : 5;
    const std::size_t mib = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 8192;
    const auto measure = form == "--park" ? measure_parking : measure_pinning;
    const std::size_t unit = form == "--park" ? kChunk / kMiB : 256;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (times >= 1 && mib >= unit && mib % unit == 0) return measure(times, mib * kMiB);
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const int start_rounds = argc > 2 ? std::atoi(argv[2]) : 4;
  std::vector<std::size_t> models;
  for (int i = 3; i < argc; ++i) models.push_back(std::strtoull(argv[i], nullptr, 10) * kMiB);
  if (models.empty()) models = {80 * kMiB, 240 * kMiB, 440 * kMiB};
  const auto sound = [](std::size_t bytes) { return bytes >= kChunk && bytes % (2 * kMiB) == 0; };
  if (rounds < 1 || start_rounds < 1 || !std::all_of(models.begin(), models.end(), sound)) {
    std::fprintf(stderr,
                 "swap_ablation: rounds and starts are numbers from 1, MiB even ones from "
                 "32\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Work work(load_module());
  const std::size_t largest = *std::max_element(models.begin(), models.end());
  const HostMemory pinned(largest, HostMemory::Kind::kPinned);
  const HostMemory pageable(largest, HostMemory::Kind::kPageable);
  for (const std::size_t bytes : models) {
    moves(bytes, rounds, work, pinned, pageable);
    early_start(bytes, rounds, work, pinned);
    starts(bytes, start_rounds, work, pinned);
  }
  const std::size_t each = 4 * largest;
  pairs(each, start_rounds, HostMemory(each, HostMemory::Kind::kPinned));
  return 0;
}
