// record_compat FOLDER: writes what this version's library and monitor say (README.md).
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "switchyard/wire.h"

namespace {

using namespace switchyard;

JobCard a_card() {
  JobCard card{};
#define SWITCHYARD_SET(field, env, capacity, fallback, ...) \
  std::snprintf(card.field, sizeof(card.field), "%s", fallback);
  SWITCHYARD_KNOBS(SWITCHYARD_SET)
#undef SWITCHYARD_SET
  std::strcpy(card.job, "job-1");
  std::strcpy(card.name, "train");
  std::strcpy(card.priority, "high");
  std::strcpy(card.share, "2.5");
  std::strcpy(card.limit, "30%");
  std::strcpy(card.deadline, "1h30m");
  std::strcpy(card.memory, "20GiB");
  std::strcpy(card.on_oom, "wait");
  std::strcpy(card.swappable, "yes");
  std::strcpy(card.idle_release, "10m,contexts");
  std::strcpy(card.park, "auto");
  std::strcpy(card.guard, "5%");
  std::strcpy(card.gradient_noise, "10");
  std::memcpy(card.unknown, "later=x y", 10);
  return card;
}

wire::Hello a_hello() {
  wire::Hello hello{};
  hello.layout_version = abi::kLayoutVersion;
  hello.flags = wire::kRejoin;
  hello.pid = 4711;
  hello.lane_count = 2;
  hello.page_bytes = abi::kPageBytes;
  for (const abi::Section& section : abi::kSections)
    hello.sections[hello.section_count++] = section;
  hello.paused = 1;
  hello.pause_until_ns = 123'456'789;
  std::strcpy(hello.process, "python3");
  write_card_text(a_card(), hello.card);
  for (unsigned gpu = 0; gpu < hello.lane_count; ++gpu) {
    std::memset(hello.uuid[gpu], static_cast<int>(0xA0 + gpu), sizeof(hello.uuid[gpu]));
    hello.used_bytes[gpu] = 1000 + gpu;
  }
  return hello;
}

void fill_lane(abi::Page& page, unsigned at) {
  abi::Lane& lane = page.lanes[at];
  lane.credit_bytes = 1'000'000 + at;
  lane.launches = 100 + at;
  lane.graph_launches = 200 + at;
  lane.copies = 300 + at;
  lane.link_bytes = 400 + at;
  lane.device_bytes = 500 + at;
  lane.attention = abi::kSwappable;
  lane.places = 1;
  lane.unpinned = 7;
  lane.precopies = 1;
  std::memset(lane.uuid, static_cast<int>(0xA0 + at), sizeof(lane.uuid));
  lane.in_use = lane.contexts = lane.compute_groups = 1;
  lane.slice_applied_seq = 9;
  lane.compute_slice_applied_us = 2048;
  lane.slice_status = abi::kSliceAccepted;
  lane.used_bytes = 600 + at;
  lane.refusals = 3;
  abi::Gate& gate = page.gates[at];
  gate.state = abi::kGateReady;
  gate.waits = 11;
  gate.submitted[3] = gate.done[3] = 12;
  abi::Residency& residency = page.residencies[at];
  residency.phase = abi::kAbsent;
  residency.total_bytes = 7000 + at;
  residency.host_bytes = 8000;
  residency.moves = 2;
  residency.answered = 5;
  page.memories[at].moved_out_bytes = 7000;
  page.memories[at].times_out = 1;
  page.memories[at].contexts = abi::kContextsMayLeave;
}

void fill_rings(abi::Page& page) {
  page.process.entered = page.process.left = 40;
  page.process.collectives[1] = 40;
  page.process.collective_bytes[1] = 4000;
  page.process.recorded = page.process.timed = page.process.normed = 1;
  page.process.launching_thread = 4712;
  page.process.communicators_used = 100;
  for (const unsigned slot : {0u, 99u}) {
    abi::Communicator& communicator = page.communicators[slot];
    communicator.id = 77 + slot;
    communicator.rank = 1;
    communicator.ranks = 4;
    communicator.last_kind = 1;
    communicator.launched = 40;
    communicator.use = 2;
  }
  for (abi::Record* ring : {page.records, page.timings}) {
    ring[0].time_us = 5;
    ring[0].what = abi::collective_record(99, 1, 40);
    ring[0].bytes = 100;
    ring[0].number = 1;
  }
  abi::Norm& norm = page.norms[0];
  norm.what = 99 | abi::kNormSummed;
  norm.launched = 40;
  norm.elements = 25;
  norm.before = std::bit_cast<std::uint64_t>(1.5);
  norm.after = std::bit_cast<std::uint64_t>(6.0);
  norm.number = 1;
}

void write_file(const std::string& path, const void* bytes, std::size_t size) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

// In lines of 64 bytes.
void write_sparse(const std::string& path, const char* bytes, std::uint32_t size) {
  constexpr std::uint32_t kLine = 64;
  const std::string none(kLine, '\0');
  std::ofstream out(path, std::ios::binary);
  for (std::uint32_t at = 0; at < size; at += kLine) {
    if (std::memcmp(bytes + at, none.data(), kLine) == 0) continue;
    out.write(reinterpret_cast<const char*>(&at), sizeof(at));
    out.write(reinterpret_cast<const char*>(&kLine), sizeof(kLine));
    out.write(bytes + at, kLine);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "record_compat FOLDER\n"), 2;
  const std::string folder = std::string(argv[1]) + "/";
  const wire::Hello hello = a_hello();
  const wire::Charge charge{1, 0, 4096};
  const wire::Share share{{{1, 2}}, 3, 4};
  const wire::Welcome welcome{abi::kLayoutVersion, abi::kPageBytes, 4713, wire::kSharesMemory};
  const wire::Charged charged{wire::kWait, wire::kParkedMakesWay, 0, 4096};
  const wire::Shared shared{wire::kTaken, 5, 4, 0};
  write_file(folder + "hello", &hello, sizeof(hello));
  write_file(folder + "charge", &charge, sizeof(charge));
  write_file(folder + "share", &share, sizeof(share));
  write_file(folder + "welcome", &welcome, sizeof(welcome));
  write_file(folder + "charged", &charged, sizeof(charged));
  write_file(folder + "shared", &shared, sizeof(shared));
  write_file(folder + "card", hello.card, sizeof(hello.card));
  const auto page = std::make_unique<abi::Page>();
  fill_lane(*page, 0);
  fill_lane(*page, 1);
  fill_rings(*page);
  write_sparse(folder + "page", reinterpret_cast<const char*>(page.get()), sizeof(*page));
  return 0;
}
