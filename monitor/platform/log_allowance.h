// How many lines of the log one user may cause, so that none of them fills the disk.
//
// Threading: a plain value.
#pragma once

#include <sys/types.h>

#include <map>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

class LogAllowance {
 public:
  enum class Answer { kYes, kLast, kNo };  // kLast: what follows is left out, which may be said

  explicit LogAllowance(unsigned most_in_a_minute) : most_(most_in_a_minute) {}

  Answer line(uid_t uid, Time now) {
    const auto [at, first] = users_.try_emplace(uid, User{now, 0});
    User& user = at->second;
    if (now - user.since >= std::chrono::minutes(1)) user = {now, 0};
    if (user.lines >= most_) return Answer::kNo;
    return ++user.lines == most_ ? Answer::kLast : Answer::kYes;
  }

 private:
  struct User {
    Time since{0};
    unsigned lines = 0;
  };
  unsigned most_;
  std::map<uid_t, User> users_;
};

}  // namespace switchyard::monitor
