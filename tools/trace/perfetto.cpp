#include "tools/trace/perfetto.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "switchyard/uuid.h"
#include "switchyard/version.h"
#include "tools/trace/protobuf.h"

namespace switchyard::tools::trace {
namespace {

// Fields of Perfetto's messages, by their .proto files.
namespace trace_fields {
constexpr unsigned kPacket = 1;
}
namespace packet {
constexpr unsigned kClockSnapshot = 6, kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11,
                   kInternedData = 12, kSequenceFlags = 13, kDefaults = 59, kTrackDescriptor = 60,
                   kAttributes = 126, kGpuInfo = 128;
constexpr unsigned kStateCleared = 1, kNeedsState = 2;  // kSequenceFlags
}  // namespace packet
namespace clock_snapshot {
constexpr unsigned kClocks = 1, kPrimary = 2;
constexpr unsigned kClockId = 1, kClockTime = 2;
constexpr unsigned kRealtime = 1, kMonotonic = 3;  // kClockId
}  // namespace clock_snapshot
namespace defaults {
constexpr unsigned kClockId = 58;
}
namespace gpu_info {
constexpr unsigned kGpu = 1;
constexpr unsigned kName = 1, kVendor = 2, kModel = 3, kUuid = 5, kPciBdf = 7;  // kGpu
}  // namespace gpu_info
namespace interned {
constexpr unsigned kEventNames = 2, kAnnotationNames = 3, kAnnotationStrings = 29;
constexpr unsigned kId = 1, kText = 2;
}  // namespace interned
namespace track {
constexpr unsigned kUuid = 1, kName = 2, kParent = 5, kCounter = 8, kChildOrder = 11, kRank = 12,
                   kDescription = 14, kMerge = 15, kState = 18;
constexpr unsigned kExplicit = 3;   // kChildOrder
constexpr unsigned kMergeNone = 2;  // kMerge
constexpr unsigned kUnit = 3, kUnitName = 6;
constexpr unsigned kBytes = 3;  // kUnit
}  // namespace track
namespace event {
constexpr unsigned kAnnotations = 4, kType = 9, kNameId = 10, kTrack = 11, kCounterValue = 30,
                   kRealCounterValue = 44, kFlows = 47, kEndingFlows = 48;
constexpr unsigned kBegin = 1, kEnd = 2, kCounter = 4, kState = 5;  // kType
constexpr unsigned kAnnotationName = 1, kStringId = 17;             // of an annotation
}  // namespace event
namespace attributes {
constexpr unsigned kAttribute = 1, kKey = 1, kString = 3;
}

constexpr std::uint64_t kSequence = 1;
constexpr char kGpuNote[] =
    "Who runs on the GPU. Turns at gates are exact. Where several jobs run, the driver's time "
    "slices "
    "divide the GPU, and nobody sees which of them has it at an instant: see their counters.";
constexpr char kStateNote[] =
    "What the job does, without whom or what it waits for; the slices above say that.";
constexpr char kShareNote[] =
    "Part of the GPU's time over about a second. Under time slices it is an estimate.";

// Texts that have been told once are named by number from then on.
class Texts {
 public:
  explicit Texts(unsigned field) : field_(field) {}
  std::uint64_t number_of(const std::string& text, Message& interned) {
    const auto [known, fresh] = numbers_.try_emplace(text, numbers_.size() + 1);
    if (fresh) {
      Message entry;
      entry.number(interned::kId, known->second);
      entry.text(interned::kText, text);
      interned.message(field_, entry);
    }
    return known->second;
  }

 private:
  unsigned field_;
  std::map<std::string, std::uint64_t> numbers_;
};

// An event of a slice: what it may have besides its time and track.
struct Slice {
  std::string name;
  std::vector<std::pair<const char*, std::string>> notes = {};
  std::uint64_t comes_from = 0;              // a flow; 0: none
  std::vector<std::uint64_t> leads_to = {};  // flows
};

class Writer {
 public:
  explicit Writer(const Timeline& timeline) : timeline_(timeline) {}

  std::string write();

 private:
  void open();
  void write_gpu_info();
  void describe(std::uint64_t uuid, std::uint64_t parent, const std::string& name,
                const char* description, std::uint64_t rank, const Message* kind = nullptr,
                unsigned kind_field = track::kCounter);
  void begin(std::int64_t at, std::uint64_t uuid, const Slice& slice);
  void end(std::int64_t at, std::uint64_t uuid);
  void count(std::int64_t at, std::uint64_t uuid, std::uint64_t value);
  void count_real(std::int64_t at, std::uint64_t uuid, double value);
  void write_gpu(std::size_t gpu);
  void write_users(std::size_t gpu, std::uint64_t uuid);
  void write_lane(std::size_t lane, std::uint64_t parent, std::uint64_t rank);
  void write_states(const Lane& lane, std::uint64_t parent);
  void write_counters(const Lane& lane, std::uint64_t parent);
  void enter(std::int64_t at, std::uint64_t uuid, const char* state);
  void emit(std::int64_t at, const Message& event, const Message& interned = {});
  void packet(const Message& packet) { out_.message(trace_fields::kPacket, packet); }

  const Timeline& timeline_;
  Message out_;
  Texts names_{interned::kEventNames}, keys_{interned::kAnnotationNames},
      strings_{interned::kAnnotationStrings};
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::uint64_t>> leads_to_;
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> comes_from_;
  std::uint64_t tracks_ = 0;
};

void Writer::open() {
  const auto clock = [](unsigned id, std::uint64_t at) {
    Message out;
    out.number(clock_snapshot::kClockId, id);
    out.number(clock_snapshot::kClockTime, at);
    return out;
  };
  Message clocks;
  clocks.message(clock_snapshot::kClocks,
                 clock(clock_snapshot::kMonotonic, static_cast<std::uint64_t>(timeline_.to)));
  clocks.message(
      clock_snapshot::kClocks,
      clock(clock_snapshot::kRealtime, static_cast<std::uint64_t>(timeline_.unix_seconds * 1e9)));
  clocks.number(clock_snapshot::kPrimary, clock_snapshot::kMonotonic);
  Message defaults;
  defaults.number(defaults::kClockId, clock_snapshot::kMonotonic);
  Message first;
  first.number(packet::kSequenceId, kSequence);
  first.number(packet::kSequenceFlags, packet::kStateCleared);
  first.message(packet::kClockSnapshot, clocks);
  first.message(packet::kDefaults, defaults);
  packet(first);
  Message version;
  version.text(attributes::kKey, "switchyard_version");
  version.text(attributes::kString, kVersion);
  Message all;
  all.message(attributes::kAttribute, version);
  Message told;
  told.message(packet::kAttributes, all);
  packet(told);
  write_gpu_info();
}

// As the kernel spells it, of NVML's "00000000:3B:00.0".
std::string pci_bdf(std::string bus_id) {
  if (bus_id.size() == 16 && bus_id.rfind("0000", 0) == 0) bus_id.erase(0, 4);
  for (char& c : bus_id) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  }
  return bus_id;
}

void Writer::write_gpu_info() {
  Message all;
  for (const Gpu& gpu : timeline_.gpus) {
    Message about;
    about.text(gpu_info::kName, fmt::format("GPU {}", gpu.index));
    about.text(gpu_info::kVendor, "NVIDIA");
    about.text(gpu_info::kModel, gpu.name);
    std::uint8_t uuid[16];
    if (parse_uuid(gpu.uuid.c_str(), uuid)) {
      about.text(gpu_info::kUuid, {reinterpret_cast<const char*>(uuid), sizeof(uuid)});
    }
    if (!gpu.pci_bus_id.empty()) about.text(gpu_info::kPciBdf, pci_bdf(gpu.pci_bus_id));
    all.message(gpu_info::kGpu, about);
  }
  Message out;
  out.message(packet::kGpuInfo, all);
  packet(out);
}

void Writer::describe(std::uint64_t uuid, std::uint64_t parent, const std::string& name,
                      const char* description, std::uint64_t rank, const Message* kind,
                      unsigned kind_field) {
  Message about;
  about.number(track::kUuid, uuid);
  if (parent != 0) about.number(track::kParent, parent);
  about.text(track::kName, name);
  if (kind != nullptr) {
    about.message(kind_field, *kind);
  } else {
    about.number(track::kChildOrder, track::kExplicit);
  }
  about.number(track::kRank, rank);
  if (description != nullptr) about.text(track::kDescription, description);
  about.number(track::kMerge, track::kMergeNone);
  Message out;
  out.number(packet::kSequenceId, kSequence);
  out.message(packet::kTrackDescriptor, about);
  packet(out);
}

void Writer::emit(std::int64_t at, const Message& event, const Message& interned) {
  Message out;
  out.number(packet::kTimestamp, static_cast<std::uint64_t>(at));
  out.number(packet::kSequenceId, kSequence);
  out.number(packet::kSequenceFlags, packet::kNeedsState);
  if (!interned.empty()) out.message(packet::kInternedData, interned);
  out.message(packet::kTrackEvent, event);
  packet(out);
}

void Writer::begin(std::int64_t at, std::uint64_t uuid, const Slice& slice) {
  Message interned, event;
  event.number(event::kType, event::kBegin);
  event.number(event::kTrack, uuid);
  event.number(event::kNameId, names_.number_of(slice.name, interned));
  for (const auto& [key, text] : slice.notes) {
    Message note;
    note.number(event::kAnnotationName, keys_.number_of(key, interned));
    note.number(event::kStringId, strings_.number_of(text, interned));
    event.message(event::kAnnotations, note);
  }
  for (const std::uint64_t flow : slice.leads_to) event.fixed64(event::kFlows, flow);
  if (slice.comes_from != 0) event.fixed64(event::kEndingFlows, slice.comes_from);
  emit(at, event, interned);
}

void Writer::end(std::int64_t at, std::uint64_t uuid) {
  Message event;
  event.number(event::kType, event::kEnd);
  event.number(event::kTrack, uuid);
  emit(at, event);
}

void Writer::count(std::int64_t at, std::uint64_t uuid, std::uint64_t value) {
  Message event;
  event.number(event::kType, event::kCounter);
  event.number(event::kTrack, uuid);
  event.number(event::kCounterValue, value);
  emit(at, event);
}

void Writer::count_real(std::int64_t at, std::uint64_t uuid, double value) {
  Message event;
  event.number(event::kType, event::kCounter);
  event.number(event::kTrack, uuid);
  event.real(event::kRealCounterValue, value);
  emit(at, event);
}

// `state`: null ends the last one.
void Writer::enter(std::int64_t at, std::uint64_t uuid, const char* state) {
  Message interned, event;
  event.number(event::kType, event::kState);
  event.number(event::kTrack, uuid);
  if (state != nullptr) event.number(event::kNameId, names_.number_of(state, interned));
  emit(at, event, interned);
}

void Writer::write_users(std::size_t gpu, std::uint64_t uuid) {
  for (const Users& users : timeline_.users[gpu]) {
    begin(users.from, uuid, {.name = label_of(timeline_, users)});
    end(users.to, uuid);
  }
}

// For queries by state: older tools skip such tracks, so the slices are there besides.
void Writer::write_states(const Lane& lane, std::uint64_t parent) {
  if (lane.spans.empty()) return;
  const std::uint64_t uuid = ++tracks_;
  const Message state;
  describe(uuid, parent, "state", kStateNote, 1, &state, track::kState);
  const Span* last = nullptr;
  for (const Span& span : lane.spans) {
    if (last == nullptr || last->code.state != span.code.state) {
      enter(span.from, uuid, key_of(span.code.state));
    }
    last = &span;
  }
  enter(last->to, uuid, nullptr);
}

void Writer::write_counters(const Lane& lane, std::uint64_t parent) {
  Message percent, bytes, plain;
  percent.text(track::kUnitName, "%");
  bytes.number(track::kUnit, track::kBytes);
  plain.number(track::kUnit, 2);
  const std::uint64_t share = ++tracks_, memory = ++tracks_, at_work = ++tracks_;
  describe(share, parent, "share of the GPU", kShareNote, 2, &percent);
  describe(memory, parent, "memory", nullptr, 3, &bytes);
  describe(at_work, parent, "processes at work",
           "Processes whose work the GPU has, or that brought some since the last look.", 4,
           &plain);
  const Sample* last = nullptr;
  for (const Sample& sample : lane.samples) {
    if (sample.share >= 0 && (last == nullptr || last->share != sample.share)) {
      count_real(sample.at, share, sample.share * 100);
    }
    if (last == nullptr || last->memory_bytes != sample.memory_bytes) {
      count(sample.at, memory, sample.memory_bytes);
    }
    if (last == nullptr || last->at_work != sample.at_work) {
      count(sample.at, at_work, sample.at_work);
    }
    last = &sample;
  }
}

void Writer::write_lane(std::size_t number, std::uint64_t parent, std::uint64_t rank) {
  const Lane& lane = timeline_.lanes[number];
  const auto job = timeline_.jobs.find(lane.job);
  const std::string name = job != timeline_.jobs.end()
                               ? fmt::format("{} ({})", job->second.name, job->second.user)
                               : fmt::format("job {}", lane.job);
  const std::uint64_t uuid = ++tracks_;
  describe(uuid, parent, name, nullptr, rank);
  for (std::size_t i = 0; i < lane.spans.size(); ++i) {
    const Span& span = lane.spans[i];
    Slice slice{.name = label_of(timeline_, span)};
    if (span.code.state != State::kRunning) {
      slice.notes.emplace_back("state", key_of(span.code.state));
      if (!span.code.reason.empty()) slice.notes.emplace_back("reason", span.code.reason);
    }
    const auto flows = leads_to_.find({number, i});
    if (flows != leads_to_.end()) slice.leads_to = flows->second;
    const auto flow = comes_from_.find({number, i});
    if (flow != comes_from_.end()) slice.comes_from = flow->second;
    begin(span.from, uuid, slice);
    end(span.to, uuid);
  }
  write_states(lane, uuid);
  write_counters(lane, uuid);
}

void Writer::write_gpu(std::size_t gpu) {
  const Gpu& about = timeline_.gpus[gpu];
  const std::uint64_t uuid = ++tracks_;
  describe(uuid, 0, fmt::format("GPU {}: {}", about.index, about.name), kGpuNote, gpu + 1);
  write_users(gpu, uuid);
  std::uint64_t rank = 0;
  for (std::size_t lane = 0; lane < timeline_.lanes.size(); ++lane) {
    if (timeline_.lanes[lane].gpu == gpu) write_lane(lane, uuid, ++rank);
  }
  Message bytes;
  bytes.number(track::kUnit, track::kBytes);
  const std::uint64_t memory = ++tracks_;
  describe(memory, uuid, "memory in use", "By NVML, of all processes.", ++rank, &bytes);
  std::uint64_t last = ~std::uint64_t{0};
  for (const Sample& sample : timeline_.samples[gpu]) {
    if (std::exchange(last, sample.memory_bytes) != sample.memory_bytes) {
      count(sample.at, memory, sample.memory_bytes);
    }
  }
}

std::string Writer::write() {
  std::uint64_t flow = 0;
  for (const Arrow& arrow : timeline_.arrows) {
    leads_to_[{arrow.from_lane, arrow.from_span}].push_back(++flow);
    comes_from_[{arrow.to_lane, arrow.to_span}] = flow;
  }
  open();
  for (std::size_t gpu = 0; gpu < timeline_.gpus.size(); ++gpu) write_gpu(gpu);
  return out_.bytes();
}

}  // namespace

std::string perfetto_of(const Timeline& timeline) { return Writer(timeline).write(); }

}  // namespace switchyard::tools::trace
