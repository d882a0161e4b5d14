#include "monitor/platform/background.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "monitor/platform/finished_calls.h"

namespace switchyard::monitor {

struct Background::Shared {
  struct Piece {
    std::function<void()> work, then;
  };
  std::mutex mutex;
  std::condition_variable more;
  std::deque<Piece> waiting;
  FinishedCalls finished;
  bool ends = false;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      more.wait(lock, [this] { return ends || !waiting.empty(); });
      if (ends) return;
      Piece piece = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      piece.work();
      piece.work = nullptr;
      lock.lock();
      finished.add(std::move(piece.then));
    }
  }
};

Background::Background() : shared_(std::make_shared<Shared>()) {}

Background::~Background() {
  std::deque<Shared::Piece> dropped;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
    dropped.swap(shared_->waiting);
    shared_->more.notify_one();
  }
  shared_->finished.drop();
}

bool Background::run(std::function<void()> work, std::function<void()> then) {
  if (!started_) {
    try {
      std::thread([shared = shared_] { shared->serve(); }).detach();
      started_ = true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back({std::move(work), std::move(then)});
  shared_->more.notify_one();
  return true;
}

int Background::finished() const { return shared_->finished.readable(); }

void Background::finish() { shared_->finished.run(); }

}  // namespace switchyard::monitor
