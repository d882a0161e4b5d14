// The one reader of /proc/PID/stat.
//
// Threading: any thread.
#pragma once

#include <cstddef>
#include <string>

namespace switchyard::monitor {

// Words of a stat file, counted as proc(5) does.
inline constexpr std::size_t kStatState = 3, kStatParent = 4, kStatStarted = 22, kStatExit = 52;

// That word of the stat file of a process or thread; empty: the file can't be read, or is shorter.
// The program's name, its second word, may hold anything, parentheses and newlines included.
// REQUIRES: word >= kStatState.
std::string word_of_stat(const std::string& path, std::size_t word);

}  // namespace switchyard::monitor
