// Where the monitor's socket is. Shim, monitor and tools must agree, so the rule stands here once.
//
//   1. SWITCHYARD_SOCKET, when set.
//   2. /run/switchyard/monitor.sock, root's monitor, which serves every user, when it exists.
//   3. $XDG_RUNTIME_DIR/switchyard/monitor.sock, when XDG_RUNTIME_DIR is set.
//   4. /tmp/switchyard-UID/monitor.sock; the directory has mode 0700 and the user as its owner.
//
// `switchyard run` names its monitor's socket to its job (rule 1). That monitor hands its GPUs over
// when root's comes, so a process of a job tries rule 2 when nobody listens on the named one.
//
// Root's system monitor (`switchyardd --system`) leaves a mark beside its socket. While that is
// there, `switchyard run` starts no monitor of the user's own.
//
// Threading: reads the environment; call it where getenv is allowed (never on a launch path).
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>

namespace switchyard {

inline constexpr char kSystemFolder[] = "/run/switchyard";
inline constexpr char kSystemSocket[] = "/run/switchyard/monitor.sock";
inline constexpr char kSystemMark[] = "/run/switchyard/system";
inline constexpr std::size_t kSocketPathBytes = 108;  // sun_path

// The socket of the user's own monitor (rules 3 and 4). False when the path does not fit.
inline bool user_socket_path(char (&out)[kSocketPathBytes]) {
  const char* runtime = ::getenv("XDG_RUNTIME_DIR");
  const int length =
      runtime != nullptr && runtime[0] == '/'
          ? ::snprintf(out, sizeof(out), "%s/switchyard/monitor.sock", runtime)
          : ::snprintf(out, sizeof(out), "/tmp/switchyard-%u/monitor.sock", ::geteuid());
  return length > 0 && static_cast<std::size_t>(length) < sizeof(out);
}

// The socket to connect to. False when the path does not fit into a socket address.
inline bool socket_path(char (&out)[kSocketPathBytes]) {
  const char* told = ::getenv("SWITCHYARD_SOCKET");
  if (told != nullptr && told[0] != '\0') {
    const int length = ::snprintf(out, sizeof(out), "%s", told);
    return length > 0 && static_cast<std::size_t>(length) < sizeof(out);
  }
  if (::geteuid() == 0 || ::access(kSystemSocket, F_OK) == 0) {
    return ::snprintf(out, sizeof(out), "%s", kSystemSocket) > 0;
  }
  return user_socket_path(out);
}

}  // namespace switchyard
