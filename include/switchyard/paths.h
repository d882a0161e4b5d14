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
// Threading: socket_words() reads the environment; call it where getenv is allowed. That is never
// on a launch path, nor on a thread of ours: the program may change its environment meanwhile.
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

// What the environment says of it; empty where nothing is set. A text is cut where it is too long
// for an address anyway, and stays too long.
struct SocketWords {
  char named[kSocketPathBytes + 1] = "";    // SWITCHYARD_SOCKET
  char runtime[kSocketPathBytes + 1] = "";  // XDG_RUNTIME_DIR
};

inline SocketWords socket_words() {
  SocketWords out;
  const auto take = [](char(&to)[kSocketPathBytes + 1], const char* name) {
    const char* text = ::getenv(name);
    if (text != nullptr) ::snprintf(to, sizeof(to), "%s", text);
  };
  take(out.named, "SWITCHYARD_SOCKET");
  take(out.runtime, "XDG_RUNTIME_DIR");
  return out;
}

// The socket of the user's own monitor (rules 3 and 4). False when the path does not fit.
inline bool user_socket_path(char (&out)[kSocketPathBytes],
                             const SocketWords& words = socket_words()) {
  const int length =
      words.runtime[0] == '/'
          ? ::snprintf(out, sizeof(out), "%s/switchyard/monitor.sock", words.runtime)
          : ::snprintf(out, sizeof(out), "/tmp/switchyard-%u/monitor.sock", ::geteuid());
  return length > 0 && static_cast<std::size_t>(length) < sizeof(out);
}

// The socket to connect to. False when the path does not fit into a socket address.
inline bool socket_path(char (&out)[kSocketPathBytes], const SocketWords& words = socket_words()) {
  if (words.named[0] != '\0') {
    const int length = ::snprintf(out, sizeof(out), "%s", words.named);
    return length > 0 && static_cast<std::size_t>(length) < sizeof(out);
  }
  if (::geteuid() == 0 || ::access(kSystemSocket, F_OK) == 0) {
    return ::snprintf(out, sizeof(out), "%s", kSystemSocket) > 0;
  }
  return user_socket_path(out, words);
}

}  // namespace switchyard
