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

// What the system says of a name: its id, or an errno where it cannot say.
struct NameAnswer {
  std::optional<id_t> id;
  int error = 0;
};
NameAnswer ask_system(const Rule& rule);

// A line for each rule that holds for nobody: nobody has the name, or the system did not answer.
struct Remarks {
  std::vector<std::string> nobody, unanswered;
};

// Fills in the ids of users and groups; a number is its own id.
Remarks resolve(Rules& rules, NameAnswer (*ask)(const Rule&) = ask_system);

}  // namespace switchyard::monitor::config
