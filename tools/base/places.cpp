#include "tools/base/places.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;

bool usable(const fs::path& path, int mode) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), mode) == 0;
}

}  // namespace

std::string own_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string("switchyard") : self.string();
}

namespace {

// ld.so splits LD_PRELOAD there, and has no way to quote.
Result<std::string> fit_for_preload(const std::string& library) {
  if (library.find_first_of(": ") == std::string::npos) return library;
  return Error{kFailure,
               fmt::format("'{}' cannot be preloaded: LD_PRELOAD takes no path with a blank or a "
                           "colon; install Switchyard elsewhere, or set SWITCHYARD_LIBRARY to a "
                           "link to it named libswitchyard.so in a folder without blanks",
                           library)};
}

}  // namespace

Result<std::string> find_library() {
  if (const char* told = std::getenv("SWITCHYARD_LIBRARY"); told != nullptr && told[0] != '\0') {
    std::error_code error;
    const fs::path full = fs::absolute(told, error);
    if (!error && usable(full, R_OK)) return fit_for_preload(full.string());
    return Error{kFailure, fmt::format("SWITCHYARD_LIBRARY is '{}', which is not a readable file; "
                                       "unset it or point it to libswitchyard.so",
                                       told)};
  }
  const fs::path here = fs::path(own_program()).parent_path();
  for (const fs::path& folder :
       {here, here / "../lib/switchyard", here / "../lib", here / "../lib/x86_64-linux-gnu"}) {
    const fs::path candidate = (folder / "libswitchyard.so").lexically_normal();
    if (usable(candidate, R_OK)) return fit_for_preload(candidate.string());
  }
  return Error{kFailure,
               fmt::format("libswitchyard.so was not found beside {} nor in ../lib; build "
                           "it with `make`, or set SWITCHYARD_LIBRARY",
                           own_program())};
}

Result<std::string> find_monitor_program() {
  const fs::path here = fs::path(own_program()).parent_path();
  for (const fs::path& folder :
       {here, here / "../libexec", here / "../libexec/switchyard", here / "../sbin"}) {
    const fs::path candidate = (folder / "switchyardd").lexically_normal();
    if (usable(candidate, X_OK)) return candidate.string();
  }
  std::istringstream path(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');) {
    const fs::path candidate = fs::path(folder) / "switchyardd";
    if (!folder.empty() && usable(candidate, X_OK)) return candidate.string();
  }
  return Error{kMonitorUnreachable,
               fmt::format("switchyardd was found neither beside {} nor in ../libexec nor on PATH; "
                           "build it with `make`, or start a monitor yourself",
                           own_program())};
}

}  // namespace switchyard::tools
