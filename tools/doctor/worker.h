// The work that doctor measures with: a process that keeps one GPU busy and counts.
//
//   stdout: "ready", once kernels run; then for each line on stdin a line "KERNELS SECONDS";
//           or "error TEXT" and the end.
//   stdin:  closing it ends the worker.
//
// Threading: main thread launches, a second one answers.
#pragma once

#include <string>

namespace switchyard::tools {

// Keeps the GPU with this UUID busy until stdin closes. Returns an exit code.
int run_worker(const std::string& uuid);

}  // namespace switchyard::tools
