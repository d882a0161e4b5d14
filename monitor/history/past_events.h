// Events on the disk: those that the journal has forgotten, and those of earlier monitors.
//
// Concept. A table of rows, oldest first. A row has the number that its monitor gave the event, and
// the event as a listing has it. Each monitor numbers without gaps, so a missing number is a lost
// event. The disk stood still for long then, or events came faster than they were taken. Beyond a
// number of rows the oldest go.
//
// Threading: the store's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/history/backend.h"
#include "monitor/history/sqlite.h"

namespace switchyard::monitor::history {

// A monitor that does not know the table leaves it alone (database.cpp).
extern const char* const kEventsTable;
inline constexpr char kAddEvent[] =
    "INSERT INTO events(session, number, unix_seconds, job, name, event) "
    "VALUES(?1, ?2, ?3, ?4, ?5, ?6)";

// Rows of a file of at most so many bytes: of about 500 bytes each, they take a quarter of it.
inline constexpr std::uint64_t most_events(std::uint64_t file_bytes) {
  return std::min<std::uint64_t>(100'000, file_bytes / 2048);
}

// Within a transaction. `add`: kAddEvent. False: the file refuses them.
bool write_events(const Sqlite& file, Statement& add, const std::vector<EventRow>& events,
                  std::int64_t session, std::uint64_t most);

// The answer to a question about events (backend.h): "events", and in its first part "lost". In its
// last part "last" is the number of the newest event of this session; 0: it has none here. Else
// "more_after" is what the next question names. Nullopt: the file could not be read.
std::optional<std::string> past_events(const Sqlite& file, const Query& query,
                                       std::int64_t session);

}  // namespace switchyard::monitor::history
