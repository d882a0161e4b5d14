#include "tools/doctor/around.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "switchyard/fd.h"
#include "switchyard/paths.h"
#include "switchyard/version.h"
#include "tools/base/child.h"
#include "tools/base/output.h"
#include "tools/base/places.h"
#include "tools/base/sockets.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kLibraryName[] = "libswitchyard.so";
constexpr auto kSaysItsVersionWithin = std::chrono::seconds(5);

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Its text without links; as it stands where there is none.
std::string real(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::canonical(path, error);
  return error ? path : found.string();
}

std::vector<std::string> split(const std::string& text, const char* at) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find_first_of(at, from), text.size());
    if (to > from) out.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "switchyardd 0.2.0": the second word.
std::string version_said_by(const std::string& program) {
  auto child = Child::start({program, "--version"}, {{"LD_PRELOAD", ""}});
  const auto words = split(child.finish(kSaysItsVersionWithin).out, " \n");
  return words.size() >= 2 && words[0].rfind("switchyard", 0) == 0 ? words[1] : std::string();
}

Origin origin_of(const std::string& program, const std::string& root) {
  const std::string folder = program.substr(0, program.rfind('/'));
  if (exists(folder + "/CMakeCache.txt")) return Origin::kBuild;
  const bool of_a_user = folder.find("/.local/bin") != std::string::npos;
  if (of_a_user || exists(folder + "/../pyvenv.cfg")) return Origin::kWheel;
  const bool has_package = exists(root + "/usr/share/doc/switchyard/copyright");
  if (folder == root + "/usr/bin" && has_package) return Origin::kPackage;
  return exists(folder + "/../lib/switchyard/" + kLibraryName) ? Origin::kSources
                                                               : Origin::kUnknown;
}

std::vector<Program> other_programs(const Program& own, const std::string& root) {
  const char* path = std::getenv("PATH");
  std::vector<std::string> folders = split(path != nullptr ? path : "", ":");
  folders.push_back(root + "/usr/local/bin");
  folders.push_back(root + "/usr/bin");
  std::vector<std::string> seen{real(own.path)};
  std::vector<Program> out;
  for (const std::string& folder : folders) {
    const std::string program = real(folder + "/switchyard");
    if (folder[0] != '/' || ::access(program.c_str(), X_OK) != 0) continue;
    if (std::find(seen.begin(), seen.end(), program) != seen.end()) continue;
    seen.push_back(program);
    out.push_back({program, origin_of(program, root), version_said_by(program)});
  }
  return out;
}

// What ExecStart= names: without its marks, and looked for where systemd does.
std::string program_of(const std::string& unit, const std::string& root) {
  std::istringstream lines(text_in(unit));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("ExecStart=", 0) != 0) continue;
    const auto words = split(line.substr(line.find('=') + 1), " \t");
    if (words.empty()) continue;
    std::string name =
        words[0].substr(std::min(words[0].find_first_not_of("-@:+!"), words[0].size()));
    if (name.rfind('/', 0) == 0) return root + name;
    for (const char* folder : {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/"}) {
      std::string program = fmt::format("{}{}{}", root, folder, name);
      if (exists(program)) return program;
    }
    return name;
  }
  return {};
}

std::vector<Unit> units_of_the_system(const std::string& root) {
  std::vector<Unit> out;
  for (const char* name : {"switchyardd.service", "switchyardd.socket"}) {
    Unit unit;
    std::vector<std::string> seen;
    for (const char* folder : {"/etc/systemd/system/", "/usr/local/lib/systemd/system/",
                               "/usr/lib/systemd/system/", "/lib/systemd/system/"}) {
      const std::string path = root + folder + name;
      const std::string file = real(path);
      if (!exists(path) || std::find(seen.begin(), seen.end(), file) != seen.end()) continue;
      seen.push_back(file);
      unit.path.empty() ? unit.path = path : unit.hidden.emplace_back(path);
    }
    if (unit.path.empty()) continue;
    if (const std::string program = program_of(unit.path, root); !program.empty()) {
      // A name alone is one that systemd does not find, whatever the current folder has.
      unit.program_missing = program[0] != '/' || ::access(program.c_str(), X_OK) != 0;
      unit.starts = {program, origin_of(program, root), {}};
      if (!unit.program_missing) unit.starts->version = version_said_by(program);
    }
    out.push_back(std::move(unit));
  }
  return out;
}

bool is_ours(const std::string& entry) {
  return entry.substr(entry.rfind('/') + 1) == kLibraryName;  // npos + 1 is 0
}

void sort_out(const std::vector<std::string>& entries, std::vector<std::string>& ours,
              std::vector<std::string>& missing) {
  for (const std::string& entry : entries) {
    // Names without a folder are looked for by ld.so.
    if (entry.find('/') != std::string::npos && !exists(entry)) {
      missing.push_back(entry);
    } else if (is_ours(entry)) {
      ours.push_back(entry);
    }
  }
}

bool refuses(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return fd &&
         ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

Installation look_at_installation(const std::string& root) {
  Installation out;
  out.own = {own_program(), origin_of(own_program(), root), kVersion};
  out.others = other_programs(out.own, root);
  out.units = units_of_the_system(root);
  if (const auto monitor = find_monitor_program(); !monitor) {
    out.no_monitor_program = monitor.error().text;
  }
  return out;
}

Preloads look_at_preloads(const std::string& root) {
  Preloads out;
  if (const auto library = find_library()) out.library = *library;
  const char* variable = std::getenv("LD_PRELOAD");
  sort_out(split(variable != nullptr ? variable : "", ": "), out.variable, out.variable_missing);
  sort_out(split(text_in(root + "/etc/ld.so.preload"), ": \t\n"), out.file, out.file_missing);
  return out;
}

std::vector<Place> look_at_places(const std::string& root) {
  std::vector<std::string> sockets = candidate_sockets();
  if (std::find(sockets.begin(), sockets.end(), kSystemSocket) == sockets.end()) {
    sockets.emplace_back(kSystemSocket);
  }
  std::vector<Place> out;
  for (const std::string& socket : sockets) {
    const bool systems = socket == kSystemSocket;
    const std::string path = systems ? root + socket : socket;
    Place place{socket, refuses(path), false, false};
    if (systems) {
      place.only_marked = exists(root + kSystemMark) && !exists(path);
      for (const char* folder : {"/etc/systemd/system", "/usr/local/lib/systemd/system",
                                 "/usr/lib/systemd/system", "/lib/systemd/system"}) {
        place.has_unit = place.has_unit || exists(root + folder + "/switchyardd.socket");
      }
    }
    out.push_back(std::move(place));
  }
  return out;
}

std::vector<OldLibrary> look_at_job_libraries(const nlohmann::json& jobs) {
  const std::string replaced = fmt::format("{} (deleted)", kLibraryName);
  std::vector<OldLibrary> out;
  for (const auto& job : jobs) {
    for (const auto& process : list_of(job, "processes")) {
      const auto pid = static_cast<pid_t>(number_of(process, "pid"));
      const std::string maps = text_in(fmt::format("/proc/{}/maps", pid));
      if (maps.find(replaced) != std::string::npos) {
        out.push_back({pid, text_of(job, "name")});
      }
    }
  }
  return out;
}

}  // namespace switchyard::tools
