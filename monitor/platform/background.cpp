#include "monitor/platform/background.h"

#include <sys/eventfd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "switchyard/fd.h"

namespace switchyard::monitor {

struct Background::Shared {
  struct Piece {
    std::function<void()> work, then;
  };
  std::mutex mutex;
  std::condition_variable more;
  std::deque<Piece> waiting;
  std::vector<std::function<void()>> finished;
  bool ends = false;
  Fd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

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
      finished.push_back(std::move(piece.then));
      ::eventfd_write(event.get(), 1);
    }
  }
};

Background::Background() : shared_(std::make_shared<Shared>()) {}

Background::~Background() {
  std::deque<Shared::Piece> dropped;
  std::vector<std::function<void()>> untold;
  const std::lock_guard lock(shared_->mutex);
  shared_->ends = true;
  dropped.swap(shared_->waiting);
  untold.swap(shared_->finished);
  shared_->more.notify_one();
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

int Background::finished() const { return shared_->event.get(); }

void Background::finish() {
  std::vector<std::function<void()>> ready;
  {
    const std::lock_guard lock(shared_->mutex);
    eventfd_t count = 0;
    ::eventfd_read(shared_->event.get(), &count);
    ready.swap(shared_->finished);
  }
  for (const auto& each : ready) each();
}

}  // namespace switchyard::monitor
