// The checks of what is installed: too much of it, too little, or what is left of another version.
//
// Concept. They are pure: around.h reads the machine. Each finding is a check of its own, and its
// remedy is a command.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/checks.h"

namespace switchyard::tools {

// What brought a program here, and so what removes it.
enum class Origin { kUnknown, kPackage, kWheel, kSources, kBuild };

struct Program {
  std::string path;
  Origin origin = Origin::kUnknown;
  std::string version;  // empty: it does not say one
};

// A unit file of the monitor, by name, in the first of systemd's folders that has it.
struct Unit {
  std::string path;
  std::vector<std::string> hidden;  // files of that name in later folders
  std::optional<Program>
      starts;  // of a service; its path is empty where the file has no ExecStart=
  bool program_missing = false;
};

struct Installation {
  Program own;                     // this program
  std::vector<Program> others;     // other programs of its name
  std::vector<Unit> units;         // of the system
  std::string no_monitor_program;  // why switchyardd was not found; empty: it was
};

// Entries of LD_PRELOAD and /etc/ld.so.preload.
struct Preloads {
  std::string library;                                  // that `run` preloads
  std::vector<std::string> variable, variable_missing;  // ours; files that are not there
  std::vector<std::string> file, file_missing;
};

// A place where a monitor listens, or did.
struct Place {
  std::string socket;
  bool refuses = false;      // the socket is there, and nobody listens
  bool only_marked = false;  // the system monitor's mark is there, and no socket
  bool has_unit = false;     // systemd can listen there
};

// A library that a process of a job has, and that is no file any more.
struct OldLibrary {
  pid_t pid = 0;
  std::string job;
};

std::vector<Check> check_installation(const Installation& found);
std::vector<Check> check_units(const Installation& found);
std::vector<Check> check_stale_preloads(const Preloads& found);
std::vector<Check> check_places(const std::vector<Place>& places);
Check check_job_libraries(const std::vector<OldLibrary>& old);
// `socket`: of the monitor, which says `version`.
Check check_monitor_version(const std::string& socket, const std::string& version);

}  // namespace switchyard::tools
