// The settings of a monitor: one list for the options of switchyardd and the keys of its file.
//
// Concept. A row makes the option, its help, the key, and the line of `switchyard config show`. A
// setting is said by an option, else by a variable, else by the file, else it is the default.
// options.cpp understands what was said.
//
// Threading: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace switchyard::monitor::config {

// When a changed value of the file counts: at once with a reload, or for the next monitor.
enum class Counts : std::uint8_t { kAtReload, kAtStart };

// SETTING(name, key, option, when it counts, default for people, meaning for --help)
#define SWITCHYARD_SETTINGS(SETTING)                                                               \
  SETTING(kWaitForGpu, "monitor.wait-for-gpu", "--wait-for-gpu", kAtStart, "0s; 2m with --system", \
          "how long to wait at start for a GPU to appear (default: end at once; 2m with "          \
          "--system)")                                                                             \
  SETTING(kPersist, "monitor.persist", "--persist", kAtStart, "no",                                \
          "keep running after the last job has ended")                                             \
  SETTING(kIdleExit, "monitor.idle-exit", "--idle-exit", kAtReload, "5s",                          \
          "how long to wait after the last job before ending (default: 5s; 60s before the first "  \
          "job)")                                                                                  \
  SETTING(kCapacity, "monitor.capacity", "--capacity", kAtStart, "all of it",                      \
          "the most memory of each GPU that jobs may have together (default: all of it)")          \
  SETTING(kHostPool, "monitor.host-pool", "--host-pool", kAtStart,                                 \
          "half of the memory available at start",                                                 \
          "the most pinned host memory for swapped-out data of all jobs together (default: half "  \
          "of the memory available at start; 0: none)")                                            \
  SETTING(kPolicy, "monitor.policy", "--policy", kAtReload, "priority",                            \
          "the rules by which GPUs are shared: priority, fair, exclusive or deadline (default: "   \
          "priority)")                                                                             \
  SETTING(kMinimum, "monitor.minimum", "--minimum", kAtReload, "2%",                               \
          "the part of the GPU's time that jobs of high priority leave to the others (default: "   \
          "2%)")                                                                                   \
  SETTING(kSlice, "monitor.slice", "--slice", kAtReload, "25ms",                                   \
          "the time slice of each of some equal jobs, 2ms to 100ms: with a shorter one they wait " \
          "less for each other, and the GPU loses more time in switches (default: 25ms)")          \
  SETTING(                                                                                         \
      kWaits, "monitor.waits", "--waits", kAtReload, "foreseen",                                   \
      "how a high job that waits for its CPU is served: slices or foreseen (default: foreseen)")   \
  SETTING(kBackend, "monitor.backend", "--backend", kAtReload, "auto",                             \
          "what enforces shares: auto, slice, gate or none (default: $SWITCHYARD_BACKEND, else "   \
          "auto)")                                                                                 \
  SETTING(kLog, "log.level", "--log", kAtReload, "info",                                           \
          "log level, and optionally a file: off, error, warn, info or debug, and optionally ':' " \
          "and a file")                                                                            \
  SETTING(kLogFile, "log.file", "--log-file", kAtStart, "stderr",                                  \
          "write the log into this file instead of stderr")                                        \
  SETTING(kLogSize, "log.size", "--log-size", kAtStart, "16MiB",                                   \
          "a log file of this size becomes FILE.old, and a new one begins (default: 16MiB)")       \
  SETTING(kCapPriority, "caps.priority", "--cap-priority", kAtReload, "high",                      \
          "the highest priority for users other than root")                                        \
  SETTING(kCapShare, "caps.share", "--cap-share", kAtReload, "none",                               \
          "the largest share weight for users other than root")                                    \
  SETTING(kCapMemory, "caps.memory", "--cap-memory", kAtReload, "none",                            \
          "the largest memory quota per GPU for users other than root")                            \
  SETTING(kConnections, "monitor.connections-per-user", "--connections-per-user", kAtReload,       \
          "1024",                                                                                  \
          "the most connections of one user at a time; root and the monitor's user are not "       \
          "bounded (default: 1024)")                                                               \
  SETTING(kJobs, "monitor.jobs-per-user", "--jobs-per-user", kAtReload, "256",                     \
          "the most jobs of one user (default: 256)")                                              \
  SETTING(kHistory, "history.folder", "--history", kAtStart,                                       \
          "/var/lib/switchyard, or ~/.local/state/switchyard",                                     \
          "the folder for the history of jobs, or none (default: with --system $STATE_DIRECTORY "  \
          "or /var/lib/switchyard; else $XDG_STATE_HOME/switchyard or "                            \
          "~/.local/state/switchyard)")                                                            \
  SETTING(kHistoryDays, "history.days", "--history-days", kAtStart, "90",                          \
          "for how many days the history is kept (default: 90)")                                   \
  SETTING(kHistorySize, "history.size", "--history-size", kAtStart, "256MiB",                      \
          "about the most that its file may have; older hours make way (default: 256MiB)")         \
  SETTING(kBills, "history.bills", "--bills", kAtReload, "all",                                    \
          "what users see of others' GPU time in `switchyard report`: all or own; root and the "   \
          "monitor's user see all (default: all)")                                                 \
  SETTING(kMetrics, "metrics.address", "--metrics", kAtStart, "off",                               \
          "answer scrapers of Prometheus at this address and port, as in 127.0.0.1:9835; "         \
          "whoever reaches it reads users' and jobs' names (default: off)")                        \
  SETTING(kTextfile, "metrics.textfile", "--metrics-textfile", kAtStart, "off",                    \
          "write the same every 15 s into this file, for node_exporter")                           \
  SETTING(kJobMapping, "metrics.hpc-job-mapping-dir", "--hpc-job-mapping-dir", kAtStart, "off",    \
          "write the numbers of the Slurm jobs on each GPU into this folder, as dcgm-exporter's "  \
          "option of the same name reads them")

enum class Setting : std::uint8_t {
#define SWITCHYARD_SETTING_NAME(name, ...) name,
  SWITCHYARD_SETTINGS(SWITCHYARD_SETTING_NAME)
#undef SWITCHYARD_SETTING_NAME
};

struct Row {
  const char* key;
  const char* option;
  Counts counts;
  const char* fallback;
  const char* meaning;
};
inline constexpr Row kRows[] = {
#define SWITCHYARD_SETTING_ROW(name, key, option, counts, fallback, meaning) \
  {key, option, Counts::counts, fallback, meaning},
    SWITCHYARD_SETTINGS(SWITCHYARD_SETTING_ROW)
#undef SWITCHYARD_SETTING_ROW
};
inline constexpr std::size_t kSettings = std::size(kRows);

constexpr const Row& row_of(Setting setting) { return kRows[static_cast<std::size_t>(setting)]; }

// A text that was said, and its place: "--policy", "SWITCHYARD_BACKEND", or file and line.
struct Said {
  std::string text = {};
  std::string origin = {};  // empty: nobody said it
  bool by_file = false;
};

// A line of `switchyard config show`.
struct Shown {
  std::string key, value, origin;
  Counts counts = Counts::kAtReload;
  std::string next = {};  // the value of the file for the next monitor, where it is another
};

struct Texts {
  std::array<Said, kSettings> all;
  Said& operator[](Setting setting) { return all[static_cast<std::size_t>(setting)]; }
  const Said& operator[](Setting setting) const { return all[static_cast<std::size_t>(setting)]; }
};

}  // namespace switchyard::monitor::config
