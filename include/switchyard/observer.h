// Where a monitor that only observes (`switchyardd --observe`) answers listings. No library ever
// looks there: the place stands beside that of a monitor that serves jobs (paths.h), and is none of
// its rules.
//
// Threading: reads the environment; call it where getenv is allowed (never on a launch path).
#pragma once

#include <stdio.h>
#include <string.h>

#include "switchyard/paths.h"

namespace switchyard {

inline constexpr char kObserverName[] = "observe.sock";
// Root's, for all users.
inline constexpr char kSystemObserver[] = "/run/switchyard/observe.sock";

// That of this user's own. False when the path does not fit.
inline bool observer_socket_path(char (&out)[kSocketPathBytes]) {
  char path[kSocketPathBytes];
  if (::geteuid() == 0) return ::snprintf(out, sizeof(out), "%s", kSystemObserver) > 0;
  if (!user_socket_path(path)) return false;
  *::strrchr(path, '/') = '\0';
  const int length = ::snprintf(out, sizeof(out), "%s/%s", path, kObserverName);
  return length > 0 && static_cast<size_t>(length) < sizeof(out);
}

}  // namespace switchyard
