// SQLite's calls, as far as the history needs them: a connection, and a statement that is used
// again and again.
//
// Concept. Errors are values: a call that failed says so, and error() and message() say why until
// the next call.
//
// Threading: a connection and its statements belong to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

struct sqlite3;
struct sqlite3_stmt;

namespace switchyard::monitor::history {

class Sqlite {
 public:
  // The file is made where there is none.
  bool open(const std::string& path);
  bool run(const std::string& statements);
  bool is_open() const { return connection_ != nullptr; }
  int error() const;  // SQLITE_*
  // The contents are not what SQLite has written.
  bool damaged() const;
  // The same call may succeed later: the file is in use, or the disk takes nothing.
  bool may_pass() const;
  std::string message() const;
  sqlite3* connection() const { return connection_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

class Statement {
 public:
  // One that does not compile fails each time that it is run.
  Statement(const Sqlite& database, const std::string& sql);

  // Begins anew, with these values in the places ?1, ?2, ...
  template <typename... Values>
  Statement& with(const Values&... values) {
    begin();
    int place = 0;
    (put(++place, values), ...);
    return *this;
  }
  // To the next row; false: there is none, or it failed.
  bool row();
  // Runs it to its end.
  bool done();
  bool failed() const { return failed_; }

  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  bool null(int column) const;
  // Steps of SQLite's machine so far: what a statement costs on any computer.
  std::int64_t steps() const;

 private:
  void begin();
  void put(int place, double value);
  void put(int place, std::string_view value);
  void put_integer(int place, std::int64_t value);
  template <typename Integer>
  void put(int place, Integer value) requires std::is_integral_v<Integer> {
    put_integer(place, static_cast<std::int64_t>(value));
  }

  struct Finish {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finish> statement_;
  bool failed_ = false;
};

}  // namespace switchyard::monitor::history
