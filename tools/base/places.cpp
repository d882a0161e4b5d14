#include "tools/base/places.h"

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;

// Its first bytes: class, byte order, kind and machine stand at the same place in all ELF files.
std::optional<std::array<char, 20>> elf_head(const fs::path& path) {
  std::array<char, 20> out{};
  std::ifstream file(path, std::ios::binary);
  const bool read = static_cast<bool>(file.read(out.data(), out.size()));
  return read && std::memcmp(out.data(), ELFMAG, SELFMAG) == 0 ? std::optional(out) : std::nullopt;
}

// ld.so starts the program without what it cannot load, so it is looked at first.
bool is_shared_library(const fs::path& path) {
  const auto head = elf_head(path);
  const auto own = elf_head("/proc/self/exe");
  if (!head || !own) return false;
  constexpr std::size_t kType = offsetof(Elf64_Ehdr, e_type);
  constexpr std::size_t kMachine = offsetof(Elf64_Ehdr, e_machine);
  std::uint16_t type = 0;
  std::memcpy(&type, head->data() + kType, sizeof(type));
  return type == ET_DYN && std::memcmp(head->data() + EI_CLASS, own->data() + EI_CLASS, 2) == 0 &&
         std::memcmp(head->data() + kMachine, own->data() + kMachine, sizeof(type)) == 0;
}

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
    if (!error && usable(full, R_OK)) {
      auto library = fit_for_preload(full.string());
      if (!library || is_shared_library(full)) return library;
      return Error{kFailure,
                   fmt::format("SWITCHYARD_LIBRARY is '{}', which is no shared library of "
                               "this machine; unset it or point it to libswitchyard.so",
                               told)};
    }
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
