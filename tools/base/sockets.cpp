#include "tools/base/sockets.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "switchyard/paths.h"

namespace switchyard::tools {

std::vector<std::string> candidate_sockets() {
  std::vector<std::string> found;
  char path[kSocketPathBytes];
  if (socket_path(path)) found.emplace_back(path);
  const char* told = ::getenv("SWITCHYARD_SOCKET");
  const bool chosen = told != nullptr && told[0] != '\0';
  if (!chosen && ::geteuid() != 0 && user_socket_path(path) &&
      std::find(found.begin(), found.end(), path) == found.end()) {
    found.emplace_back(path);
  }
  return found;
}

bool monitor_absent() {
  const auto candidates = candidate_sockets();
  return !candidates.empty() &&
         std::all_of(candidates.begin(), candidates.end(), [](const std::string& path) {
           return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
         });
}

std::string own_socket() {
  const auto candidates = candidate_sockets();
  return candidates.empty() ? std::string() : candidates.back();
}

}  // namespace switchyard::tools
