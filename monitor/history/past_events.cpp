#include "monitor/history/past_events.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "switchyard/status.h"

namespace switchyard::monitor::history {

using nlohmann::json;

const char* const kEventsTable =
    "CREATE TABLE IF NOT EXISTS events("
    "key INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, number INTEGER NOT NULL, "
    "unix_seconds REAL NOT NULL, job TEXT NOT NULL, name TEXT NOT NULL, event TEXT NOT NULL); "
    "CREATE INDEX IF NOT EXISTS events_by_time ON events(unix_seconds, session, number)";

namespace {

// Of one answer, about: a small part of a frame.
constexpr std::size_t kAnswerBytes = 256 * 1024;
// Rows that are looked at for one answer: a reader who wants one job's may have to ask again.
constexpr int kMostRead = 20'000;
// Removed beside each write, besides as many as came.
constexpr std::size_t kMostRemoved = 500;

// Events from the row `from` on that are not there.
std::optional<std::int64_t> lost_since(const Sqlite& file, std::int64_t from, bool from_first) {
  Statement sessions(file,
                     "SELECT min(key), min(number), max(number), count(*) FROM events "
                     "WHERE key >= ?1 GROUP BY session");
  sessions.with(from);
  std::int64_t lost = 0;
  while (sessions.row()) {
    lost += sessions.integer(2) - sessions.integer(1) + 1 - sessions.integer(3);
    const bool begins_before = sessions.integer(0) == from && !from_first;
    if (!begins_before) lost += sessions.integer(1) - 1;
  }
  return sessions.failed() ? std::nullopt : std::optional(lost);
}

// The first row that the question is about, and what comes before it.
struct Begin {
  std::int64_t after = 0;  // the row before it
  std::int64_t lost = 0;
};
std::optional<Begin> begin_at(const Sqlite& file, double since) {
  Statement ends(file, "SELECT min(key), max(key) FROM events");
  Statement wanted(file, "SELECT min(key) FROM events WHERE unix_seconds >= ?1");
  if (!ends.row() || !wanted.with(since).row()) return std::nullopt;
  const std::int64_t oldest = ends.integer(0), first = wanted.integer(0);
  // Nothing is of that time: the newest row alone says where the journal goes on.
  if (first == 0) return Begin{std::max<std::int64_t>(ends.integer(1) - 1, 0), 0};
  // Those that were removed may have been of that time, too.
  const std::int64_t removed = first == oldest ? first - 1 : 0;
  const auto lost = lost_since(file, first, first == oldest && removed == 0);
  if (!lost) return std::nullopt;
  return Begin{first - 1, *lost + removed};
}

}  // namespace

bool write_events(const Sqlite& file, Statement& add, const std::vector<EventRow>& events,
                  std::int64_t session, std::uint64_t most) {
  if (events.empty()) return true;
  for (const EventRow& event : events) {
    add.with(session, event.number, event.unix_seconds, event.job, event.name, event.json);
    if (!add.done()) return false;
  }
  Statement old(file,
                "DELETE FROM events WHERE key IN (SELECT key FROM events WHERE "
                "key <= (SELECT max(key) FROM events) - ?1 ORDER BY key LIMIT ?2)");
  return old.with(most, events.size() + kMostRemoved).done();
}

std::optional<std::string> past_events(const Sqlite& file, const Query& query,
                                       std::int64_t session) {
  json out = {{"schema_version", kSchemaVersion}, {"ok", true}, {"events", json::array()}};
  std::int64_t after = query.after;
  if (after == 0) {
    const auto begin = begin_at(file, query.since_unix);
    if (!begin) return std::nullopt;
    out["lost"] = begin->lost;
    after = begin->after;
  }
  Statement rows(file,
                 "SELECT key, unix_seconds, job, name, session, number, event FROM events "
                 "WHERE key > ?1 ORDER BY key LIMIT ?2");
  rows.with(after, kMostRead + 1);
  std::size_t bytes = 0;
  std::int64_t last = 0;
  int read = 0;
  bool more = false;
  while (rows.row()) {
    more = ++read > kMostRead || bytes >= kAnswerBytes;
    if (more) break;
    after = rows.integer(0);
    last = rows.integer(4) == session ? rows.integer(5) : 0;
    const bool wanted = query.job.empty() || rows.text(2) == query.job || rows.text(3) == query.job;
    if (!wanted || rows.real(1) < query.since_unix) continue;
    const std::string text = rows.text(6);
    bytes += text.size();
    json event = json::parse(text, nullptr, false);
    if (event.is_object()) out["events"].push_back(std::move(event));
  }
  if (rows.failed()) return std::nullopt;
  if (more) out["more_after"] = after;
  if (!more) out["last"] = last;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace switchyard::monitor::history
