// How a job and its test talk: "ready" or "error" at the begin, then an answer to each line.
//
//     the test   COMMAND [ARGUMENTS]          quit, or the end of its input
//     the job    did COMMAND | what it says | failed COMMAND RESULT
//
// Threading: the thread that calls it.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

namespace jobs {

// `act(line, says)` does what a line says, and may put its answer into `says`. Returns the exit
// status where the job could not begin; else it ends the process, which frees nothing.
template <typename Act>
int converse(bool began, const Act& act) {
  std::printf(began ? "ready\n" : "error\n");
  std::fflush(stdout);
  if (!began) return 1;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const std::string command = line.substr(0, line.find(' '));
    std::string says;
    const CUresult result = act(line, says);
    if (result != CUDA_SUCCESS) {
      std::printf("failed %s %d\n", command.c_str(), static_cast<int>(result));
    } else {
      std::printf("%s\n", says.empty() ? ("did " + command).c_str() : says.c_str());
    }
    std::fflush(stdout);
  }
  std::_Exit(0);
}

}  // namespace jobs
