#include "monitor/history/sqlite.h"

#include <sqlite3.h>

namespace switchyard::monitor::history {
namespace {

// Somebody else's sqlite3 may read the file, and a backup may copy it.
constexpr int kBusyMs = 1000;

}  // namespace

void Sqlite::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

bool Sqlite::open(const std::string& path) {
  sqlite3* made = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
  const int code = sqlite3_open_v2(path.c_str(), &made, flags, nullptr);
  connection_.reset(made);
  if (code != SQLITE_OK) return false;
  sqlite3_busy_timeout(made, kBusyMs);
  return true;
}

bool Sqlite::run(const std::string& statements) {
  return sqlite3_exec(connection(), statements.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
}

int Sqlite::error() const { return sqlite3_errcode(connection()) & 0xff; }

bool Sqlite::damaged() const { return error() == SQLITE_CORRUPT || error() == SQLITE_NOTADB; }

bool Sqlite::may_pass() const {
  if (!is_open()) return false;
  switch (error()) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_NOMEM:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
      return true;
    default:
      return false;
  }
}

std::string Sqlite::message() const { return sqlite3_errmsg(connection()); }

void Statement::Finish::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(const Sqlite& database, const std::string& sql) {
  sqlite3_stmt* made = nullptr;
  sqlite3_prepare_v3(database.connection(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &made,
                     nullptr);
  statement_.reset(made);
}

void Statement::begin() {
  failed_ = false;
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

void Statement::put_integer(int place, std::int64_t value) {
  sqlite3_bind_int64(statement_.get(), place, value);
}

void Statement::put(int place, double value) {
  sqlite3_bind_double(statement_.get(), place, value);
}

void Statement::put(int place, std::string_view value) {
  sqlite3_bind_text(statement_.get(), place, value.data(), static_cast<int>(value.size()),
                    SQLITE_TRANSIENT);
}

bool Statement::row() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  failed_ = code != SQLITE_DONE;
  // An open statement would keep its view of the file.
  sqlite3_reset(statement_.get());
  return false;
}

bool Statement::done() {
  while (row()) {
  }
  return !failed_;
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* text = sqlite3_column_text(statement_.get(), column);
  const int bytes = sqlite3_column_bytes(statement_.get(), column);
  return text == nullptr
             ? std::string()
             : std::string(reinterpret_cast<const char*>(text), static_cast<std::size_t>(bytes));
}

bool Statement::null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::int64_t Statement::steps() const {
  return sqlite3_stmt_status(statement_.get(), SQLITE_STMTSTATUS_VM_STEP, 0);
}

}  // namespace switchyard::monitor::history
