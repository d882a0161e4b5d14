// Is there a program to start? Asked before a job is made, so that a slip of the finger reserves
// nothing.
//
// Threading: reads the environment and the file system.
#pragma once

#include <optional>
#include <string>

#include "tools/base/result.h"

namespace switchyard::tools {

// Nothing when execvp() would find `name`; else kNotFound or kNotExecutable, as a shell says.
std::optional<Error> refuse_program(const std::string& name);

// The error for an execvp() that failed with `error` although the program was there.
Error exec_failed(const std::string& name, int error);

}  // namespace switchyard::tools
