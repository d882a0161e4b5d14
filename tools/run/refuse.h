// The reasons for which `run` starts no job, each with its remedy.
//
// Threading: the process has one thread.
#pragma once

#include <optional>
#include <string>

#include "tools/base/monitor_client.h"
#include "tools/run/options.h"

namespace switchyard::tools {

// What `status` says against sharing, if anything.
struct Doubt {
  std::string text;
  bool no_gpu = false;
  bool chosen = false;  // a person switched sharing off
};

std::optional<Doubt> doubt(MonitorClient& monitor);

// Why the job can't have the shares that it asks for; nullopt: it can, or need not.
std::optional<Error> refuse_shares(const RunOptions& options, const Doubt& against);
// Why its memory can't be swapped: a call that the library does not know could use memory that is
// away. The library, which knows the driver of each process, then leaves memory in place.
std::optional<Error> refuse_swapping(const RunOptions& options);
// Why it is not started where Switchyard can't manage it, for the reason `why`.
std::optional<Error> refuse_unmanaged(const RunOptions& options, const std::string& why);

}  // namespace switchyard::tools
