// Is there a program to start? Asked before a job is made, so that a slip of the finger reserves
// nothing.
//
// Threading: reads the environment and the file system.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

// Nothing when execvp() would find `name`; else kNotFound or kNotExecutable, as a shell says.
std::optional<Error> refuse_program(const std::string& name);

// Replaces this process by the command. Answers only where that failed, although the program was
// there.
Error execute(const std::vector<std::string>& command);

}  // namespace switchyard::tools
