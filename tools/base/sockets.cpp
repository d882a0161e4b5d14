#include "tools/base/sockets.h"

#include <algorithm>

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

std::string own_socket() {
  const auto candidates = candidate_sockets();
  return candidates.empty() ? std::string() : candidates.back();
}

}  // namespace switchyard::tools
