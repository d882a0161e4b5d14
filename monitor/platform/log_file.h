// A log in a file of ours, bounded: when it is full it becomes FILE.old, and a new one begins.
//
// Concept. The file may lie where others can write (/tmp), so a link is not followed, and a file of
// another user is refused. Standard output and error follow when they are the same file, because a
// monitor that `switchyard run` started has them there. Where no new file can be made, the old one
// begins anew: it is bounded in any case.
//
// Threading: spdlog's; the sink has a lock of its own.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "switchyard/fd.h"

namespace switchyard::monitor {

// Nullptr: it can't be used, and `why` says why.
std::shared_ptr<spdlog::sinks::sink> open_log_file(const std::string& path, std::uint64_t most,
                                                   std::string& why);

// One line: the time with its zone, the level, the text.
inline constexpr char kLogPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z [%l] %v";

}  // namespace switchyard::monitor
