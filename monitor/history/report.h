// The answer of `switchyard report`: sums over the tables of database.h, as a listing in JSON.
//
// Concept. All rows have the same sums, whatever they are for (`by`). Time on several GPUs adds up.
// Jobs come in parts, because one frame of the wire does not take ten thousand: "more_after" is
// what the next question names. So do users and jobs of Slurm. Unmanaged processes have rows of
// their own, behind the last part: by user where jobs are listed one by one. The query says whether
// the asker may see bills and command lines.
//
// Threading: the store's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "monitor/history/backend.h"
#include "monitor/history/sqlite.h"

namespace switchyard::monitor::history {

// Rows in one part.
inline constexpr int kPart = 400;

// Nullopt: the file could not be read. `session`: the monitor that runs (database.h). `steps` is
// what it took.
std::optional<std::string> report(const Sqlite& file, const Query& query, std::int64_t session,
                                  std::int64_t& steps);

// The answer where there is none.
std::string unread(const std::string& why);

}  // namespace switchyard::monitor::history
