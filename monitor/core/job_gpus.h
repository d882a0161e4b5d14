// The GPUs that a job has to do with.
//
// Concept. It was created for some, or for any. Its clients list those that they can see. It uses
// those where it had a context or memory. The processes of a job begin one after the other. So its
// quota is promised on all that it may use, until it is settled which it uses.
//
// Threading: one thread.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

class JobGpus {
 public:
  using Set = std::set<std::size_t>;

  const Set& named() const { return named_; }  // that it was created for; empty: any
  const Set& seen() const { return seen_; }    // these, and those that its clients listed
  const Set& used() const { return used_; }
  // Its quota is promised on the GPUs that are named or used, and nowhere else.
  bool settled() const { return settled_; }

  void create_for(const std::vector<std::size_t>& gpus) {
    named_.insert(gpus.begin(), gpus.end());
    seen_ = named_;
  }
  // True: that is news.
  bool see(std::size_t gpu) { return seen_.insert(gpu).second; }
  bool use(std::size_t gpu) { return used_.insert(gpu).second; }
  // None of its clients can see it any more.
  void lose(std::size_t gpu) {
    if (named_.count(gpu) == 0) seen_.erase(gpu);
  }
  // Whether it has used some for long enough to settle it. The first question begins that time.
  bool may_settle(Time now) {
    if (used_since_ == Time{0}) used_since_ = now;
    return !settled_ && now - used_since_ >= kSettles;
  }
  void settle() { settled_ = true; }
  // It has moved, and uses just these.
  void move(std::size_t from, std::size_t to, Set used) {
    const bool had_from = named_.erase(from) != 0;
    const bool had_to = named_.erase(to) != 0;
    if (had_from) named_.insert(to);
    if (had_to) named_.insert(from);
    used_ = std::move(used);
    settled_ = true;
  }

 private:
  // Longer than the processes of a job take to begin one after the other.
  static constexpr Time kSettles = std::chrono::seconds(60);

  Set named_, seen_, used_;
  Time used_since_{0};
  bool settled_ = false;
};

}  // namespace switchyard::monitor
