#include "tools/base/write_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace switchyard::tools {

std::optional<Error> write_file(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const std::string draft = path + ".new";
  const auto failed = [&] {
    Error why{kFailure, fmt::format("cannot write {}: {}", path, std::strerror(errno))};
    ::unlink(draft.c_str());
    return why;
  };
  std::ofstream out(draft, std::ios::trunc);
  out << text;
  out.close();
  if (!out) return failed();
  if (::chmod(draft.c_str(), 0644) != 0 || ::rename(draft.c_str(), path.c_str()) != 0) {
    return failed();
  }
  return std::nullopt;
}

}  // namespace switchyard::tools
