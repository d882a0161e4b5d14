// The order of requests: one of each user in turn.
//
// Concept. What a user asks waits behind that user's own requests. So how long others wait depends
// on how many users ask, not on how much one of them asks.
//
// Threading: a plain value.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <utility>

namespace switchyard::monitor {

class Turns {
 public:
  using Request = std::function<void()>;

  void add(uid_t uid, Request request) {
    auto& queue = waiting_[uid];
    if (queue.empty()) order_.push_back(uid);
    queue.push_back(std::move(request));
  }
  bool empty() const { return order_.empty(); }
  // pre: !empty()
  Request next() {
    const uid_t uid = order_.front();
    order_.pop_front();
    const auto found = waiting_.find(uid);
    Request request = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
      waiting_.erase(found);
    } else {
      order_.push_back(uid);
    }
    return request;
  }

 private:
  std::map<uid_t, std::deque<Request>> waiting_;  // none of them is empty
  std::deque<uid_t> order_;                       // who waits, each once
};

}  // namespace switchyard::monitor
