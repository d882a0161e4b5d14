#include "monitor/platform/closer.h"

#include <sys/socket.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "monitor/platform/finished_calls.h"

namespace switchyard::monitor {
namespace {

// A thread that has nothing to do ends after so long.
constexpr auto kIdle = std::chrono::seconds(1);

}  // namespace

struct Closer::Shared {
  struct Batch {
    std::vector<Fd> descriptors;
    std::shared_ptr<void> keeps;
    std::function<void()> then;
  };
  struct Lane {
    std::deque<Batch> waiting;
    std::condition_variable more;
  };
  std::mutex mutex;
  std::map<uid_t, Lane> lanes;  // each has a thread
  FinishedCalls finished;

  // The thread of one user.
  void serve(uid_t uid) {
    std::unique_lock lock(mutex);
    Lane& lane = lanes[uid];
    for (;;) {
      if (lane.waiting.empty() &&
          !lane.more.wait_for(lock, kIdle, [&lane] { return !lane.waiting.empty(); })) {
        lanes.erase(uid);
        return;
      }
      Batch batch = std::move(lane.waiting.front());
      lane.waiting.pop_front();
      lock.unlock();
      batch.descriptors.clear();
      batch.keeps.reset();
      lock.lock();
      if (!batch.then) continue;
      finished.add(std::move(batch.then));
    }
  }
};

Closer::Closer() : shared_(std::make_shared<Shared>()) {}
Closer::~Closer() = default;

void Closer::close(uid_t uid, std::vector<Fd> descriptors, std::shared_ptr<void> keeps,
                   std::function<void()> then) {
  if (descriptors.empty() && !then) return;
  const std::lock_guard lock(shared_->mutex);
  const bool fresh = !shared_->lanes.contains(uid);
  Shared::Lane& lane = shared_->lanes[uid];
  lane.waiting.push_back({std::move(descriptors), std::move(keeps), std::move(then)});
  lane.more.notify_one();
  if (!fresh) return;
  // Where no thread can be had they stay open: rather that than to stand still.
  try {
    std::thread([shared = shared_, uid] { shared->serve(uid); }).detach();
  } catch (const std::system_error&) {
    auto* left = new std::deque<Shared::Batch>(std::move(lane.waiting));
    shared_->lanes.erase(uid);
    for (Shared::Batch& batch : *left) {
      if (batch.then) shared_->finished.add(std::move(batch.then));
    }
  }
}

void Closer::hang_up(uid_t uid, int socket, std::shared_ptr<void> keeps) {
  Fd taken(socket);
  ::shutdown(socket, SHUT_RDWR);
  // Nothing can come any more. If nothing waits in it either, to close it takes no time.
  char byte = 0;
  const ssize_t waits = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  int type = SOCK_DGRAM;
  socklen_t bytes = sizeof(type);
  ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes);
  const bool empty = waits < 0 ? errno == EAGAIN : waits == 0 && type == SOCK_STREAM;
  if (empty) return;
  std::vector<Fd> one;
  one.push_back(std::move(taken));
  close(uid, std::move(one), std::move(keeps));
}

int Closer::finished() const { return shared_->finished.readable(); }

void Closer::finish() { shared_->finished.run(); }

}  // namespace switchyard::monitor
