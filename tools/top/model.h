// What `top` shows: the rows, their past, which one is selected, and what was asked of a person.
//
// Concept. Listings come in, and keys. A row is a job, or a process that no job has. Both have the
// form in which jobs are listed, so that the columns of `ps` show them. The past of a row is kept
// here, from listing to listing. A row is selected by its id: it stays so when the order changes. A
// key that would change a job makes a question, and only the answer `y` makes an order of it.
//
// Threading: a plain value; time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/base/result.h"
#include "tools/base/selector.h"

namespace switchyard::tools::top {

using Time = std::chrono::steady_clock::time_point;

// One look at the machine, as `ps --json` and `status --json` list it.
// NOLINTNEXTLINE(bugprone-exception-escape): to move JSON throws nothing
struct Look {
  nlohmann::json ps, status;
  std::string notice;   // that there is no monitor, say; empty: nothing
  std::string summary;  // of all jobs, where only some are selected; empty: of the listing
};

// Keeps the rows that are selected, of jobs and of processes that no job has. An error where a word
// names none: nothing is kept then.
std::optional<Error> keep_selected(Look& look, const Selection& selection);

// Keys are characters, and these.
enum : int { kUp = 0x110000, kDown, kPageUp, kPageDown, kHome, kLast };

struct Order {
  enum class What { kPause, kResume, kSetPriority, kEnd, kQuit };
  What what = What::kQuit;
  std::string id, name;  // of the job
  std::string priority;  // to set
};

// "pause train"
std::string text_of_order(const Order& order);

enum class Sort { kShare, kMemory, kAge, kName };
const char* name_of(Sort sort);

class Model {
 public:
  struct Past {
    std::deque<std::optional<double>> share, memory;  // ratios, oldest first
  };
  struct Entry {
    std::string id;
    nlohmann::json job;
    bool managed = true;
  };

  void take(Look look, Time now);
  // There is no listing: the last one stays, and `why` is said.
  void miss(const std::string& why);
  // What came of an order.
  void say(const std::string& text) { message_ = text; }

  // `page`: rows that the screen has.
  std::optional<Order> press(int key, std::size_t page);

  const nlohmann::json& gpus() const;
  const nlohmann::json& ps() const { return look_.ps; }
  std::string summary() const;  // the last line
  const std::vector<Entry>& entries() const { return entries_; }
  const Past& past(const std::string& id) const;
  std::size_t place() const { return place_; }  // of what is selected; 0 where nothing is there
  const Entry* selected() const;
  Sort sort() const { return sort_; }
  bool helps() const { return helps_; }
  const std::optional<Order>& question() const { return question_; }
  const std::string& message() const { return message_; }
  // Why the listing is not all, or old; empty: it is neither.
  std::string notice(Time now) const;

 private:
  void follow();
  void arrange();
  void ask(Order::What what);
  bool move(int key, std::size_t page);

  Look look_;
  Time taken_at_{};
  std::string missing_;  // why the last look failed
  std::vector<Entry> entries_;
  std::map<std::string, Past> pasts_;
  std::string selected_;
  std::size_t place_ = 0;
  Sort sort_ = Sort::kShare;
  bool helps_ = false;
  std::optional<Order> question_;
  std::string message_;
};

}  // namespace switchyard::tools::top
