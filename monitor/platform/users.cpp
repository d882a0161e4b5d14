#include "monitor/platform/users.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

// Its socket, two bells, a second descriptor of one of them, the page until it is sent, its
// process.
constexpr std::size_t kDescriptorsOfOne = 8;
constexpr std::size_t kRefusalsOfOne = 16;

std::size_t open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  constexpr rlim_t kEnough = 1 << 20;
  return static_cast<std::size_t>(std::min(limit.rlim_cur, kEnough));
}

std::string name_of(const Owner& who) {
  return user_name(who.uid) + (account_of(who) == who.uid ? "" : " of this container");
}

}  // namespace

struct Users::Taken {
  struct Sum {
    std::size_t connections = 0, descriptors = 0, refusals = 0;
  };
  std::mutex mutex;
  std::map<uid_t, Sum> by_user;  // bounded ones
  std::size_t descriptors = 0;   // of all of them
};

Users::Users(uid_t owner, Most most)
    : owner_(owner), most_(most), taken_(std::make_shared<Taken>()) {
  if (most_.descriptors == 0) most_.descriptors = open_files();
}
Users::~Users() = default;

Users::Seat Users::take(uid_t uid, std::size_t connections, std::size_t descriptors,
                        std::size_t refusals) {
  if (!bounded(uid)) return std::make_shared<char>();
  // Half of all may be shared memory (shared_memory.h). An eighth is left to root.
  const std::size_t most_of_all = most_.descriptors * 3 / 8;
  const std::lock_guard lock(taken_->mutex);
  Taken::Sum& sum = taken_->by_user[uid];
  const bool fits = sum.connections + connections <= most_.connections &&
                    sum.descriptors + descriptors <= most_of_all / 2 &&
                    sum.refusals + refusals <= kRefusalsOfOne &&
                    taken_->descriptors + descriptors <= most_of_all;
  if (!fits) return nullptr;
  sum.connections += connections;
  sum.descriptors += descriptors;
  sum.refusals += refusals;
  taken_->descriptors += descriptors;
  const auto give_back = [taken = taken_, uid, connections, descriptors,
                          refusals](const char* seat) {
    delete seat;
    const std::lock_guard locked(taken->mutex);
    Taken::Sum& had = taken->by_user[uid];
    had.connections -= connections;
    had.descriptors -= descriptors;
    had.refusals -= refusals;
    taken->descriptors -= descriptors;
    if (had.connections + had.descriptors + had.refusals == 0) taken->by_user.erase(uid);
  };
  return Seat(new char, give_back);
}

Users::Seat Users::connect(uid_t uid) { return take(uid, 1, kDescriptorsOfOne, 0); }
// It comes out of root's part, so it is a small one.
Users::Seat Users::refuse(uid_t uid) { return take(uid, 0, 0, 1); }
Users::Seat Users::hold(uid_t uid, std::size_t descriptors) { return take(uid, 0, descriptors, 0); }

void Users::set(Most most, Rules rules) {
  most_.connections = most.connections;
  most_.jobs = most.jobs;
  rules_ = std::move(rules);
}

std::string Users::too_many_connections(const Owner& who) const {
  const std::size_t by_descriptors = most_.descriptors * 3 / 16 / kDescriptorsOfOne;
  return fmt::format(
      "{} has as many connections to this monitor as one user may have (at most {}; fewer while "
      "other users need the rest): end some processes, or ask root for a larger "
      "{} or limit of open files",
      name_of(who), std::min(most_.connections, by_descriptors), rules_.connections);
}

std::string Users::too_many_jobs(const Owner& who) const {
  return fmt::format(
      "{} has {} jobs, as many as one user may have: wait until some have ended, or "
      "ask root for a larger {}",
      name_of(who), most_.jobs, rules_.jobs);
}

}  // namespace switchyard::monitor
