// Starts a program beside the test's process.
//
// Concept. The process has threads, of the driver. A child that it forks may find the allocator's
// lock held for ever, so nothing may be allocated there. posix_spawn does all that a child needs.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace conformance {

struct Spawned {
  std::string program;                 // its path
  std::vector<std::string> words;      // argv
  std::vector<std::string> more = {};  // NAME=VALUEs that replace those of the environment
  std::vector<std::pair<int, int>> descriptors = {};  // here, and there
  bool session = false;                               // of its own
};

// Its PID; 0: it could not be started.
pid_t spawn(Spawned what);

// This program, as the second process of a test (children.h).
Spawned own_child(const std::string& name);

// Starts it with the text on its standard input, and waits; its exit status.
int run_child(const std::string& name, const std::string& input = {});

}  // namespace conformance
