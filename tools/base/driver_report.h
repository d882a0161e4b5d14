// libcuda's answers on this machine, asked in a child process. A driver that was loaded can't be
// unloaded, and some drivers end the process that asks.
//
// Threading: forks; call it from the only thread.
#pragma once

#include <string>

namespace switchyard::tools {

struct DriverReport {
  bool answered = false;  // the child came to its end; else `reason` says what happened
  bool found = false;     // libcuda.so.1 could be loaded
  std::string path;       // where it came from
  int init_result = -1;   // of cuInit; 34 is the toolkit's stub
  int version = 0;        // of cuDriverGetVersion, such as 13000
  int devices = 0;
  std::string reason;  // of the loader, in its own words
};

DriverReport ask_driver();

// The driver's CUDA, such as 13000, without a start of it; 0: it does not say.
int driver_version();

// "CUDA 12.8" of 12080
std::string cuda_version_text(int version);

// The remedy where the driver is newer than `known`, the CUDA whose calls the library knows.
std::string newer_driver_remedy(int known);

// One line without a full stop: why this machine has no GPU to share.
std::string why_no_gpu();
std::string why_no_gpu(const DriverReport& report);

// An error of cuInit: what it means on a machine that should have a GPU, and what to do.
struct InitError {
  int code;
  const char* name;
  const char* meaning;
  const char* remedy;
};
// Null for a code that has no such advice.
const InitError* init_error(int code);

}  // namespace switchyard::tools
