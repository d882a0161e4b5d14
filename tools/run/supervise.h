// Runs a command in a child that stands for this process (`run --report`).
//
// Concept. To our caller all is as if this process had become the command:
//
//     a signal that a process sends us    is sent on to the command
//     a signal of the terminal            reaches the command by itself, in our process group
//     a terminal stops it (Ctrl-Z)        we stop, so that the shell sees it; continued, it goes on
//     a SIGSTOP of its own stops it       whoever sent that continues it
//     we are killed with SIGKILL          the command is, too
//     the command ends                    `supervise` answers how; `end_like` ends us alike
//
// A program that sends a signal to the whole process group reaches the command twice.
//
// Threading: the process has one thread, whose signals are waited for.
#pragma once

#include <functional>

#include "tools/base/result.h"

namespace switchyard::tools {

// Calls `act` in a child, which becomes the command or ends with what `act` answers. Answers the
// child's status, as of waitpid, or why there is no child (kRunRefused). `again` is told the status
// before that: if it says so, there is another child, whose status counts.
Result<int> supervise(const std::function<int()>& act, const std::function<bool(int)>& again = {});

// For `again`: whether a signal that ends us came since the command's end, as that of a terminal.
bool asked_to_end();

// Ends this process as `status` says: by the same exit code, or by the same signal.
[[noreturn]] void end_like(int status);

}  // namespace switchyard::tools
