// The door to the file: reads it, and asks for the numbers of the users and groups that it names.
//
// Concept. The file of root's monitor decides for all users, so it is believed only if nobody else
// can write to it. Both the disk and a service of names may stand still. So this is called at start
// and later on a thread that nobody waits for (reload.h).
//
// Threading: any thread; not the loop's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "monitor/config/rules.h"

namespace switchyard::monitor::config {

// The text of a file of root or of this process's user. Nullopt: `why` says what was tried; empty
// where there is no such file.
std::optional<std::string> read_file(const std::string& path, std::string& why);

// Fills in the ids of users and groups; a number is its own id. Answers a line for each name that
// nobody has: its rule holds for nobody.
std::vector<std::string> resolve(Rules& rules);

}  // namespace switchyard::monitor::config
