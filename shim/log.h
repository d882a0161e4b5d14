// The shim's log: SWITCHYARD_LOG=level[:file], and never on stdout.
//
// Levels: off, error, warn, info, debug. Without a file, stderr. A line is one write, so lines of
// several processes that share a file do not mix. Without SWITCHYARD_LOG, warnings and errors go to
// stderr, each kind (place in the source) once per process. A refused allocation or a job that runs
// unmanaged must not stay unknown. A process that never calls CUDA or NVML says nothing.
//
// All descriptors are the program's. Once it has closed the log's, or has opened another file as
// stderr where nobody asked for a log, nothing is written any more.
//
// Threading: any thread; no lock. Never called on a launch path.
#pragma once

namespace switchyard::shim {

enum class Level : int { kOff = 0, kError, kWarn, kInfo, kDebug };

// The text of SWITCHYARD_LOG that is no level: then it is as if it were not set. Null: it is right,
// or not set.
const char* mistyped_level();

// The file of SWITCHYARD_LOG that cannot be opened, and the errno: then warnings go to
// stderr, unless the level is off. No path: it is open, or not asked for.
struct Unopened {
  const char* path = nullptr;
  int error = 0;
};
Unopened unopened_log();

// Whether a line of this level would be written.
bool log_enabled(Level level);

void log_line(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Says a thing once per process and per place: `said` is a static of the caller's.
struct Once {
  bool said = false;
};
void log_once(Once& once, Level level, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace switchyard::shim
