#include "tools/doctor/installation.h"

#include <fmt/format.h>

#include "switchyard/paths.h"
#include "switchyard/version.h"

namespace switchyard::tools {
namespace {

constexpr char kGlobalPreload[] = "/etc/ld.so.preload";

std::string version_of(const Program& program) {
  return program.version.empty() ? "of an unknown version" : "of version " + program.version;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// That of an environment, or the system's for `pip install --user`.
std::string python_of(const std::string& folder) {
  const bool of_a_user = folder.find("/.local/bin") != std::string::npos;
  return of_a_user ? "python3" : folder + "/python";
}

// The command that removes a program with all that came with it.
std::string removal_of(const Program& program) {
  switch (program.origin) {
    case Origin::kPackage:
      return "sudo apt purge 'switchyard*'";
    case Origin::kWheel:
      return fmt::format("{} -m pip uninstall switchyard", python_of(folder_of(program.path)));
    case Origin::kSources:
      return "sudo make uninstall, in the sources of that version";
    case Origin::kBuild:
      return fmt::format("take {} out of PATH", folder_of(program.path));
    default:
      return fmt::format("rm {}", program.path);
  }
}

std::string without_file(const std::string& entry) {
  return fmt::format("sudo sed -i '\\#{}#d' {}", entry, kGlobalPreload);
}

// All is well, unless there are findings.
std::vector<Check> findings_or(std::vector<Check> findings, const char* name,
                               const std::string& well) {
  if (findings.empty()) findings.push_back({name, Verdict::kOk, well, ""});
  return findings;
}

}  // namespace

std::vector<Check> check_installation(const Installation& found) {
  constexpr char kName[] = "installation";
  std::vector<Check> out;
  if (!found.no_monitor_program.empty()) {
    out.push_back({kName, Verdict::kFail, "half installed: " + found.no_monitor_program,
                   found.own.origin == Origin::kPackage
                       ? "sudo apt install --reinstall switchyard"
                       : "install Switchyard again, with `make install` or the wheel"});
  }
  std::string same;
  for (const Program& other : found.others) {
    if (other.version == found.own.version) {
      same += fmt::format(", and so is {}", other.path);
      continue;
    }
    out.push_back({kName, Verdict::kWarn,
                   fmt::format("installed twice: {} is {}, and {} is {}", found.own.path,
                               version_of(found.own), other.path, version_of(other)),
                   "of both remove one: " + removal_of(other)});
  }
  return findings_or(std::move(out), kName,
                     fmt::format("{} is {}{}", found.own.path, version_of(found.own), same));
}

std::vector<Check> check_units(const Installation& found) {
  constexpr char kName[] = "units";
  std::vector<Check> out;
  for (const Unit& unit : found.units) {
    const std::string remove = fmt::format("sudo rm {} && sudo systemctl daemon-reload", unit.path);
    for (const std::string& hidden : unit.hidden) {
      out.push_back({kName, Verdict::kWarn,
                     fmt::format("{} hides {}, so upgrades do not change it", unit.path, hidden),
                     remove});
    }
    if (!unit.starts) continue;
    if (unit.program_missing) {
      out.push_back({kName, Verdict::kFail,
                     fmt::format("{} starts {}, which is not there", unit.path, unit.starts->path),
                     "install Switchyard again, or: " + remove});
    } else if (unit.starts->version != found.own.version) {
      out.push_back(
          {kName, Verdict::kWarn,
           fmt::format("{} starts {} {}, and this program is {}", unit.path, unit.starts->path,
                       version_of(*unit.starts), version_of(found.own)),
           fmt::format("{}; then: sudo systemctl daemon-reload && sudo systemctl restart "
                       "switchyardd",
                       removal_of(*unit.starts))});
    }
  }
  return findings_or(std::move(out), kName,
                     found.units.empty() ? "no unit of the system"
                                         : fmt::format("{} is in force", found.units[0].path));
}

std::vector<Check> check_stale_preloads(const Preloads& found) {
  constexpr char kName[] = "stale preloads";
  std::vector<Check> out;
  for (const std::string& entry : found.file_missing) {
    out.push_back({kName, Verdict::kFail,
                   fmt::format("{} names {}, which is not there: each program complains",
                               kGlobalPreload, entry),
                   without_file(entry)});
  }
  for (const std::string& entry : found.file) {
    out.push_back({kName, Verdict::kWarn,
                   fmt::format("{} names {}: all programs of the machine load it, and `switchyard "
                               "run` preloads another one",
                               kGlobalPreload, entry),
                   without_file(entry)});
  }
  for (const std::string& entry : found.variable_missing) {
    out.push_back({kName, Verdict::kWarn,
                   fmt::format("LD_PRELOAD names {}, which is not there", entry),
                   "unset LD_PRELOAD"});
  }
  for (const std::string& entry : found.variable) {
    if (entry == found.library) continue;
    out.push_back({kName, Verdict::kWarn,
                   fmt::format("LD_PRELOAD names {}, and `switchyard run` preloads {}", entry,
                               found.library.empty() ? "nothing" : found.library),
                   "unset LD_PRELOAD"});
  }
  return findings_or(std::move(out), kName, "no library of another installation is preloaded");
}

std::vector<Check> check_places(const std::vector<Place>& places) {
  constexpr char kName[] = "stale sockets";
  std::vector<Check> out;
  for (const Place& place : places) {
    if (place.refuses) {
      const bool systems = place.socket == kSystemSocket;
      out.push_back({kName, Verdict::kWarn, fmt::format("nobody listens at {}", place.socket),
                     systems && place.has_unit
                         ? "sudo systemctl restart switchyardd.socket"
                         : fmt::format("{}rm {}", systems ? "sudo " : "", place.socket)});
    } else if (place.only_marked && !place.has_unit) {
      out.push_back({kName, Verdict::kWarn,
                     fmt::format("{} says that the machine has a monitor, and no unit starts one",
                                 kSystemMark),
                     fmt::format("sudo rm {}", kSystemMark)});
    }
  }
  return findings_or(std::move(out), kName, "none");
}

Check check_job_libraries(const std::vector<OldLibrary>& old) {
  constexpr char kName[] = "job libraries";
  if (old.empty()) return {kName, Verdict::kOk, "no job has a library that was replaced", ""};
  std::string all;
  for (const OldLibrary& each : old) {
    all += fmt::format("{}{} ({})", all.empty() ? "" : ", ", each.pid, each.job);
  }
  // Versions work together, so nothing has to be mended.
  return {kName, Verdict::kOk,
          "these go on with the library that they started with, which was replaced since: " + all,
          ""};
}

Check check_monitor_version(const std::string& socket, const std::string& version) {
  const bool same = version == kVersion;
  const char* restart = socket == kSystemSocket
                            ? "sudo systemctl restart switchyardd"
                            : "switchyard stop --force --resume; the next `run` starts a new one";
  return {"monitor", same ? Verdict::kOk : Verdict::kWarn,
          same ? fmt::format("the monitor at {} answers, version {}", socket, version)
               : fmt::format("the monitor at {} answers, version {}, and this program is {}",
                             socket, version, kVersion),
          same ? "" : restart};
}

}  // namespace switchyard::tools
