// `switchyard run`: prepares a job and becomes it.
//
//   check the knobs (2) → choose the GPUs (2, 125) → find the program (127, 126) → a monitor that
//   answers, started if need be → create the job, quota reserved (125) → environment → execvp
//
// Where no monitor manages the job, it starts unmanaged only if it was promised nothing. Inside
// another run the command joins the outer job, unless --separate drops what the outer job set.
//
// The job's process is this process, so terminal, signals and exit status are its own. With
// --report or --restart a child does all this, and this process stands for it (supervise.h).
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_run(CommandLine& line);

// Splits `arguments` (without the program's name) of `run` into its own and the command's. The
// command starts after `--` or at the first word that is no option.
void split_command(std::vector<std::string>& arguments, std::vector<std::string>& command);

}  // namespace switchyard::tools
