// The environment that makes a process a client: the preload and the variables of its job.
//
// Threading: changes the environment; call it from the only thread.
#pragma once

#include <string>

#include "tools/run/request.h"

namespace switchyard::tools {

// `value` of LD_PRELOAD with `library` last and no other libswitchyard.so. Other libraries stay
// before it, in their order. The run time of a sanitizer must come first, and ours need not.
std::string preload_with(const std::string& value, const std::string& library);

// `value` of LD_PRELOAD without any libswitchyard.so.
std::string preload_without(const std::string& value);

// Makes this process, and what it will exec, a process of `job`.
void enter_job(const std::string& job, const Card& card, const std::string& socket,
               const std::string& library, bool require);

// Keeps it a process of the job that it belongs to, also when the preload was dropped meanwhile.
void stay_in_job(const std::string& library, bool require);

// Makes it a process of no job: unmanaged.
void leave_job();

}  // namespace switchyard::tools
