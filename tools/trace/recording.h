// What the monitor recorded: plain values, as `{"op":"timeline"}` tells them (switchyard/wire.h).
//
// Threading: plain values. read_recording() blocks, with a limit on every wait.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/monitor_client.h"
#include "tools/base/result.h"

namespace switchyard::tools::trace {

using JobKey = std::uint64_t;

// As `ps` has it. A key that this version does not know is kUnknown.
enum class State : std::uint8_t {
  kUnknown,
  kRunning,
  kIdle,
  kHeld,
  kWaiting,
  kPaused,
  kSwapped,
  kMoving,
  kStopped,
  kUnmanaged,
};
inline constexpr unsigned kStates = 10;
const char* key_of(State state);
State state_named(const std::string& key);

struct Code {
  State state = State::kUnknown;
  std::string reason = {};  // its key; empty: none
  bool operator==(const Code&) const = default;
};

// Of the kinds of events those that decide what is drawn.
enum class Kind : std::uint8_t {
  kOther,
  kJobBegins,
  kJobEnds,
  kStatus,  // a state, seen five times a second
  kPaused,
  kResumed,
  kLeaves,
  kLeft,
  kReturns,
  kIsBack,
  kGate,
};
Kind kind_named(const std::string& key);

struct Event {
  static constexpr std::uint32_t kNobody = ~0u;

  std::int64_t at = 0;  // in ns, on the monitor's clock
  Kind kind = Kind::kOther;
  JobKey job = 0, by = 0;
  unsigned gpu = 0;  // 1 + its place; 0: all of the job
  std::int64_t pid = 0;
  std::uint32_t uid = kNobody;  // of the person who asked
  std::uint64_t value = 0;      // of a gate: the reasons for which it is closed, and those before
  Code before = {}, after = {};
};

struct Sample {
  std::int64_t at = 0;
  JobKey job = 0;    // 0: all of the GPU
  unsigned gpu = 0;  // 1 + its place
  std::uint64_t memory_bytes = 0;
  double share = -1;  // of the GPU's time; -1: not known
  unsigned at_work = 0, held_threads = 0;
  std::uint64_t launches = 0;
};

struct Job {
  std::string id, name, user;
  // Of one that lives.
  bool lives = false;
  Code now = {};
  JobKey by = 0;
  struct OnGpu {
    Code now = {};
    JobKey by = 0;
  };
  std::map<unsigned, OnGpu> gpus = {};  // by 1 + place
  struct Gate {
    unsigned gpu = 0;
    std::int64_t pid = 0;
    std::uint32_t closed = 0;
  };
  std::vector<Gate> gates = {};
};

struct Gpu {
  unsigned index = 0;
  std::string name, uuid;
  std::uint64_t memory_total_bytes = 0;
  std::string pci_bus_id = {};  // empty: not known
};

struct Recording {
  std::int64_t from = 0, to = 0;  // ns on the monitor's clock
  double unix_seconds = 0;        // at `to`
  std::vector<Gpu> gpus = {};
  std::map<JobKey, Job> jobs = {};
  std::map<std::uint32_t, std::string> people = {};  // who may have asked for something, by uid
  std::vector<Event> events = {};                    // in order of time; some may be after `to`
  std::vector<Sample> samples = {};                  // in order of time
  bool shortened = false;                            // the monitor has overwritten the beginning
};

// The last `seconds` that the monitor has.
Result<Recording> read_recording(MonitorClient& monitor, double seconds);

}  // namespace switchyard::tools::trace
