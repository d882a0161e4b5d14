// How the ranks of a job find each other: by NCCL's unique id in a file.
//
// Threading: the thread that calls it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "shim/nccl/abi.h"

namespace jobs {

inline bool tell(const std::string& file, const ncclUniqueId& id) {
  std::ofstream(file + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
  return ::rename((file + ".new").c_str(), file.c_str()) == 0;
}
// Once it is there.
inline ncclUniqueId told(const std::string& file) {
  for (ncclUniqueId id;; ::usleep(1000)) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof id.internal)) return id;
  }
}

// All ranks' unique id: rank 0 makes it, and the others wait for the file.
inline bool agree(const std::string& file, int rank, ncclUniqueId& id) {
  if (rank == 0) return ncclGetUniqueId(&id) == kNcclSuccess && tell(file, id);
  id = told(file);
  return true;
}

}  // namespace jobs
