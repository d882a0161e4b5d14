#include "monitor/history/store.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "switchyard/fd.h"

namespace switchyard::monitor::history {
namespace {

constexpr auto kGoodBye = std::chrono::seconds(1);
constexpr Time kTidyEvery = std::chrono::minutes(1);

Moment moment() { return {steady_now(), static_cast<std::int64_t>(std::time(nullptr))}; }

}  // namespace

struct Store::Shared {
  struct Question {
    Query query;
    std::function<void(std::string)> then;
  };
  struct Answered {
    std::function<void(std::string)> then;
    std::string json;
  };

  Shared(Open from, Bounds limits) : open(std::move(from)), bounds(limits) {}

  // --- the thread ---

  void serve() {
    std::string why;
    std::unique_ptr<Backend> backend = open(why);
    std::unique_lock lock(mutex);
    if (backend == nullptr) {
      off = why.empty() ? "the database could not be opened" : why;
      waiting = {};
      say(fmt::format("no history is kept: {}", off));
    }
    while (backend != nullptr && !ends) {
      more.wait_for(lock, bounds.pause, [this] { return ends || !questions.empty(); });
      if (ends) break;
      const bool answers = !questions.empty();
      if (answers || steady_now() >= write_at) write(lock, *backend);
      if (answers && !ends) answer(lock, *backend);
    }
    if (backend != nullptr) write(lock, *backend);
    lock.unlock();
    backend.reset();
    lock.lock();
    ended = true;
    gone.notify_all();
  }

  // Leaves the lock while the disk is at work.
  void write(std::unique_lock<std::mutex>& lock, Backend& backend) {
    write_at = steady_now() + bounds.pause;
    Rows rows = std::exchange(waiting, {});
    lock.unlock();
    const Moment now = moment();
    std::string why;
    const bool written = rows.empty() || backend.write(rows, now, why);
    if (written && now.steady >= tidy_at && !backend.tidy(now)) tidy_at = now.steady + kTidyEvery;
    const std::string remark = backend.remark();
    lock.lock();
    if (!remark.empty()) say(remark);
    if (written) {
      if (std::exchange(fails, false)) say("the history is written again");
      return;
    }
    if (!std::exchange(fails, true)) {
      say(fmt::format("writing the history failed: {}; it is tried again, and nothing waits for it",
                      why));
    }
    Rows later = std::exchange(waiting, std::move(rows));
    add(std::move(later));
  }

  void answer(std::unique_lock<std::mutex>& lock, Backend& backend) {
    Question question = std::move(questions.front());
    questions.pop_front();
    lock.unlock();
    std::string json = backend.report(question.query);
    const std::string remark = backend.remark();
    lock.lock();
    if (!remark.empty()) say(remark);
    answered.push_back({std::move(question.then), std::move(json)});
    ::eventfd_write(event.get(), 1);
  }

  // --- under the lock ---

  void say(std::string line) {
    lines.push_back(std::move(line));
    ::eventfd_write(event.get(), 1);
  }

  void add(Rows rows) {
    const std::size_t gone_now = waiting.add(std::move(rows), bounds.rows);
    if (gone_now == 0) return;
    if (lost == 0) say("rows of the history are lost, for the disk does not take them");
    lost += gone_now;
  }

  const Open open;
  const Bounds bounds;
  mutable std::mutex mutex;
  std::condition_variable more, gone;
  Rows waiting;
  std::deque<Question> questions;
  std::vector<Answered> answered;
  std::vector<std::string> lines;
  std::string off;  // why there is no history; empty: there is
  std::uint64_t lost = 0;
  bool ends = false, ended = false;
  bool fails = false;
  Time write_at{0}, tidy_at{0};  // the thread's
  Fd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

Store::Store(Open open, Bounds bounds)
    : shared_(std::make_shared<Shared>(std::move(open), bounds)) {
  // Detached: a disk that never answers must not keep the monitor from its end.
  try {
    std::thread([shared = shared_] { shared->serve(); }).detach();
  } catch (const std::system_error& error) {
    shared_->off = error.what();
    shared_->ended = true;
    shared_->say(fmt::format("no history is kept: {}", shared_->off));
  }
}

Store::~Store() {
  {
    std::unique_lock lock(shared_->mutex);
    shared_->ends = true;
    shared_->more.notify_all();
    shared_->gone.wait_for(lock, kGoodBye, [this] { return shared_->ended; });
  }
  finish();
}

void Store::add(Rows rows) {
  if (rows.empty()) return;
  const std::lock_guard lock(shared_->mutex);
  if (shared_->off.empty()) shared_->add(std::move(rows));
}

bool Store::ask(Query query, std::function<void(std::string)> then, std::string& why) {
  const std::lock_guard lock(shared_->mutex);
  auto& questions = shared_->questions;
  const auto own = std::count_if(questions.begin(), questions.end(),
                                 [&](const auto& each) { return each.query.uid == query.uid; });
  if (!shared_->off.empty()) {
    why = fmt::format("no history is kept: {}", shared_->off);
    return false;
  }
  if (questions.size() >= shared_->bounds.questions ||
      static_cast<std::size_t>(own) >= shared_->bounds.questions_of_user) {
    why = "the history answers others: ask again in a moment";
    return false;
  }
  questions.push_back({std::move(query), std::move(then)});
  shared_->more.notify_all();
  return true;
}

std::uint64_t Store::lost() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->lost;
}

int Store::finished() const { return shared_->event.get(); }

void Store::finish() {
  std::vector<Shared::Answered> answered;
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(shared_->mutex);
    eventfd_t count = 0;
    ::eventfd_read(shared_->event.get(), &count);
    answered.swap(shared_->answered);
    lines.swap(shared_->lines);
  }
  for (const std::string& line : lines) spdlog::warn("{}", line);
  for (Shared::Answered& each : answered) each.then(std::move(each.json));
}

}  // namespace switchyard::monitor::history
