// This program once more, as another process.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace switchyard::bench::ablation {

struct Child {
  pid_t pid = 0;
  int to = -1;    // its standard input
  int from = -1;  // its standard output
};

// With these arguments. Where it can't be started the program ends.
Child start_self(std::vector<std::string> arguments);
// Ends it, and waits until it has.
void end(const Child& child);

[[noreturn]] void fail(const char* what);

}  // namespace switchyard::bench::ablation
