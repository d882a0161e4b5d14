// What a client, the command line and the control daemon of the simulated MPS say to each other.
//
// Concept. The daemon's socket stands in the pipe folder. A process that connects writes one line:
// a command as a person writes it, or `attach`. The answer ends with the connection. A client is
// told "server N", the place of its server in the state file, or "refused".
//
// Threading: any thread.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace fakecuda::mps {

inline constexpr char kPipeVariable[] = "CUDA_MPS_PIPE_DIRECTORY";

// Where the daemon listens; empty: no folder is named.
inline std::string control_path() {
  const char* folder = getenv(kPipeVariable);
  return folder && *folder ? std::string(folder) + "/control" : "";
}

// False: the path does not fit.
inline bool address_of(const std::string& path, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  const int length = snprintf(out.sun_path, sizeof out.sun_path, "%s", path.c_str());
  return length > 0 && static_cast<std::size_t>(length) < sizeof out.sun_path;
}

// One line to the daemon, and its answer. False: nobody listens there.
inline bool ask_daemon(const std::string& line, std::string& answer) {
  sockaddr_un address{};
  const std::string path = control_path();
  if (path.empty() || !address_of(path, address)) return false;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool asked = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
               send(fd, (line + "\n").data(), line.size() + 1, MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(line.size() + 1);
  answer.clear();
  char part[512];
  for (ssize_t got = 1; asked && got > 0;) {
    got = read(fd, part, sizeof part);
    if (got > 0) answer.append(part, static_cast<std::size_t>(got));
  }
  close(fd);
  return asked;
}

}  // namespace fakecuda::mps
