// `run --co-run`: the island that a job runs in, and its MPS daemon.
//
// Concept. An island is a name, this user and one GPU. It has a folder in the user's runtime
// folder, whose files say by record locks (flock) who is there:
//
//     pipe/, log/   of its control daemon, which `run` starts as this user, before the job
//     starting      held while somebody starts or ends the daemon
//     members       held, shared, by the processes of its jobs: they inherit the open file
//     keeper        held by the process that ends the daemon after the last job (keeper.h)
//
// Each GPU has a daemon of its own, for a fault on one GPU of a server refuses its others, too. The
// daemon and its server have the library and the island's name, so that the server sets the slices
// that the monitor wants. Nothing else of the machine's MPS is touched.
//
// Threading: changes the environment; call it from the only thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/base/nvml_report.h"
#include "tools/base/result.h"

namespace switchyard::tools::island {

struct Island {
  std::string name;
  std::string gpu;     // its UUID
  std::string folder;  // of the island

  std::string pipe() const { return folder + "/pipe"; }
  std::string log() const { return folder + "/log"; }
};

// The UUID of the one GPU that a process with that CUDA_VISIBLE_DEVICES sees; null: unset. An
// error: there is not one, or no island can be on it.
Result<std::string> choose_gpu(const char* visible, const NvmlReport& report);

// The island of that name for this process, which from now on sees that GPU alone. An error says
// what stands against it.
Result<Island> choose(const std::string& name);

// Starts what the island lacks, and makes this process, and what it will exec, a member. `socket`:
// of the monitor. `library`: the preload.
std::optional<Error> enter(const Island& island, const std::string& socket,
                           const std::string& library);
// Makes it a member of none, if it is one by the environment.
void leave();

// Takes the client out of the server of this user's island of that name on that GPU. Call it before
// a signal ends the client: one that ends with work under way may harm the others. Without such an
// island nothing happens.
void terminate_client(const std::string& name, const std::string& gpu, int pid);

}  // namespace switchyard::tools::island
