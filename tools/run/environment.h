// The environment that makes a process a client: the preload and the variables of its job.
//
// Threading: changes the environment; call it from the only thread.
#pragma once

#include <string>

#include "tools/run/request.h"

namespace switchyard::tools {

// `value` of LD_PRELOAD with `library` first and no other libswitchyard.so; what else was there
// stays, in its order.
std::string preload_with(const std::string& value, const std::string& library);

// `value` of LD_PRELOAD without any libswitchyard.so.
std::string preload_without(const std::string& value);

// Makes this process, and what it will exec, a process of `job`.
void enter_job(const std::string& job, const Card& card, const std::string& socket,
               const std::string& library, bool require);

// Makes it a process of no job: unshared.
void leave_job();

}  // namespace switchyard::tools
