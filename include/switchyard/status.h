// Exit codes and version: what every program of Switchyard says in the same way.
//
// Threading: constants only.
#pragma once

#include "switchyard/version.h"

namespace switchyard {

// `schema_version` of every JSON listing. Raise it when a key changes its meaning or goes away.
inline constexpr int kSchemaVersion = 1;

// Exit codes of `switchyard` and `switchyardd`. `switchyard run` returns the job's own status
// instead, and 128+N for a signal. It returns kRunRefused when Switchyard itself refuses to start
// the job, and 126/127 as a shell does.
enum ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kMonitorUnreachable = 3,
  kNoSuchJobOrGpu = 4,
  kNoPermission = 5,
  kRefusedByPolicy = 6,  // a quota or a policy says no
  kTimedOut = 7,
  kRunRefused = 125,
  kNotExecutable = 126,
  kNotFound = 127,
};

}  // namespace switchyard
