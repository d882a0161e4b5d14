// What `run` does after the command's end: the bill (`--report`), and another run (`--restart`).
//
// Threading: the process has one thread.
#pragma once

#include <functional>
#include <string>

namespace switchyard::tools {

// Calls `run` in a child, which becomes the command (supervise.h). `bill`: after its end, says on
// stderr what the job had of the GPUs, by the history of its monitor. Waits up to six seconds for
// the job's end, since processes that it started may live on. `restart`: does it once more if the
// job's island has failed (restart.h). Ends this process as the command did, or answers an exit
// status. `run` gets the descriptor for tell_job().
struct Stays {
  bool bill = false;
  bool restart = false;
};
int run_and_stay(const std::function<int(int tells)>& run, Stays stays);

// The same, but this process itself becomes the command. So who started it sees the command's own
// process, and signals reach it once. Another process, apart from the terminal and from this one's
// group, waits for the end and says it then.
int run_and_tell_bill_after(const std::function<int(int tells)>& run);

// In what becomes the command: the job that the bill is of. Without it there is none.
void tell_job(int tells, const std::string& job, const std::string& socket);

}  // namespace switchyard::tools
