#include "tools/base/sockets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "switchyard/observer.h"
#include "switchyard/paths.h"
#include "switchyard/trust.h"

namespace switchyard::tools {

namespace {

bool is_set(const char* variable) {
  const char* text = ::getenv(variable);
  return text != nullptr && text[0] != '\0';
}

bool has_socket(const char* path) { return ::access(path, F_OK) == 0 || errno != ENOENT; }

}  // namespace

std::vector<std::string> candidate_sockets() {
  std::vector<std::string> found;
  const auto add = [&found](const char* path) {
    if (std::find(found.begin(), found.end(), path) == found.end()) found.emplace_back(path);
  };
  char path[kSocketPathBytes];
  if (socket_path(path)) add(path);
  if (!socket_named() && ::geteuid() != 0 && user_socket_path(path)) add(path);
  // As the library does: the monitor of this job may have handed its GPUs over to root's.
  if (is_set("SWITCHYARD_JOB") && !found.empty() && has_socket(kSystemSocket)) add(kSystemSocket);
  return found;
}

std::vector<std::string> observer_sockets() {
  std::vector<std::string> found{kSystemObserver};
  char own[kSocketPathBytes];
  if (::geteuid() != 0 && observer_socket_path(own)) found.emplace_back(own);
  return found;
}

bool socket_named() { return is_set("SWITCHYARD_SOCKET"); }

bool monitor_absent() {
  const auto candidates = candidate_sockets();
  return !socket_named() && !candidates.empty() &&
         std::all_of(candidates.begin(), candidates.end(),
                     [](const std::string& path) { return !has_socket(path.c_str()); });
}

std::string own_socket() {
  char path[kSocketPathBytes];
  const bool users = !socket_named() && ::geteuid() != 0;
  if (users ? !user_socket_path(path) : !socket_path(path)) return {};
  return path;
}

bool system_monitor_serves(const std::string& socket) {
  struct stat folder {};
  if (socket != kSystemSocket && !is_user_place(socket.c_str())) return false;
  return ::lstat(kSystemFolder, &folder) == 0 && S_ISDIR(folder.st_mode) && folder.st_uid == 0 &&
         ::access(kSystemMark, F_OK) == 0;
}

}  // namespace switchyard::tools
