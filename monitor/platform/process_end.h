// How a process that is no child of ours has ended.
//
// Concept. wait(2) tells it to the parent alone. Until the parent asks, /proc has the status, for
// those who may trace the process. After that its pidfd has it, from Linux 6.15 on. Otherwise it
// stays unknown.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace switchyard::monitor {

// As wait(2) has it; nullopt: unknown. REQUIRES: `pidfd` is of `pid`, and readable; -1: there is
// none.
std::optional<int> wait_status_of(int pidfd, pid_t pid);

// One of both is known.
struct ProcessEnd {
  std::optional<int> code, signal;
};
ProcessEnd end_of(int wait_status);

// As the history stores it: "exit code 3", "signal 9".
std::string end_text(int wait_status);
// Neither is known of a text that is none of these.
ProcessEnd end_of_text(const std::string& text);

}  // namespace switchyard::monitor
