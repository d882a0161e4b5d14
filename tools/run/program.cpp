#include "tools/run/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace switchyard::tools {
namespace {

enum class Found { kNothing, kNotExecutable, kExecutable };

Found look(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    return errno == EACCES ? Found::kNotExecutable : Found::kNothing;
  }
  if (!S_ISREG(about.st_mode) || ::access(path.c_str(), X_OK) != 0) return Found::kNotExecutable;
  return Found::kExecutable;
}

}  // namespace

std::optional<Error> refuse_program(const std::string& name) {
  Found best = Found::kNothing;
  if (name.find('/') != std::string::npos) {
    best = look(name);
  } else if (!name.empty()) {
    const char* told = std::getenv("PATH");
    const std::string path = told != nullptr ? told : "/bin:/usr/bin";
    // An empty part is the current folder, also behind the last colon.
    for (std::size_t at = 0; best != Found::kExecutable && at <= path.size();) {
      const std::size_t end = std::min(path.find(':', at), path.size());
      const std::string folder = path.substr(at, end - at);
      best = std::max(best, look((folder.empty() ? "." : folder) + "/" + name));
      at = end + 1;
    }
  }
  switch (best) {
    case Found::kExecutable:
      return std::nullopt;
    case Found::kNotExecutable:
      return Error{kNotExecutable,
                   fmt::format("cannot run '{}': it is not an executable file", name)};
    case Found::kNothing:
      break;
  }
  return Error{kNotFound, fmt::format("cannot run '{}': no such program", name)};
}

Error execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return {kNotExecutable, fmt::format("cannot run '{}': {}", command[0], std::strerror(errno))};
}

}  // namespace switchyard::tools
