// The demo's jobs as processes: plain, and under `switchyard run`.
//
// Threading: pure functions, but for what they read of the environment.
#pragma once

#include <string>
#include <vector>

namespace demo {

// The folder of the build that this program belongs to.
std::string build_folder();

// Whether the user has switched Switchyard off.
bool disabled();

// The command of a worker (worker.h).
std::vector<std::string> plain(const char* job);

// The same under `switchyard run` with these options.
std::vector<std::string> under_switchyard(const std::vector<std::string>& options, const char* job);

// Another command of `switchyard`, to its end. False: it failed, and has said why.
bool switchyard(const std::vector<std::string>& arguments);

}  // namespace demo
