#include "monitor/platform/process_watch.h"

#include <poll.h>

#include <optional>
#include <utility>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

struct ProcessWatches::Process {
  Process(asio::io_context& io, int fd, pid_t number, std::shared_ptr<Processes> others)
      : pid(number), all(std::move(others)) {
    pidfd.emplace(io, fd);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    std::erase_if(*all,
                  [this](const auto& each) { return each.first == pid && each.second.expired(); });
  }
  void dead() {
    // A callback may end other watches.
    while (!callbacks.empty()) {
      const auto call = std::move(callbacks.begin()->second);
      callbacks.erase(callbacks.begin());
      call(pidfd ? pidfd->native_handle() : -1);
    }
  }

  std::optional<asio::posix::stream_descriptor> pidfd;  // none once the loop has gone
  pid_t pid;
  std::shared_ptr<Processes> all;
  std::map<unsigned, Dead> callbacks;
  unsigned next = 0;
};

ProcessWatches::ProcessWatches(asio::io_context& io)
    : io_(io), processes_(std::make_shared<Processes>()) {}
ProcessWatches::~ProcessWatches() {
  for (const auto& [pid, each] : *processes_) {
    if (const auto process = each.lock()) process->pidfd.reset();
  }
}

// One that is dead already is another process than the one that has its number now.
std::shared_ptr<ProcessWatches::Process> ProcessWatches::find(pid_t pid) const {
  const auto [begin, end] = processes_->equal_range(pid);
  for (auto each = begin; each != end; ++each) {
    auto process = each->second.lock();
    if (process != nullptr && !readable(process->pidfd->native_handle())) return process;
  }
  return nullptr;
}

Watch ProcessWatches::call_soon(Dead then) {
  const auto once = std::make_shared<Dead>(std::move(then));
  asio::post(io_, [weak = std::weak_ptr(once)] {
    if (const auto call = weak.lock()) (*call)(-1);
  });
  return once;
}

Watch ProcessWatches::when_dead(pid_t pid, Fd pidfd, Dead then) {
  if (pidfd && readable(pidfd.get())) return call_soon(std::move(then));
  // While the process lives, no other one has its number. All that can't be seen from here have 0.
  auto process = pid > 0 ? find(pid) : nullptr;
  if (process == nullptr) {
    bool dead = false;
    if (!pidfd) pidfd = open_process(pid, dead);
    if (dead) return call_soon(std::move(then));
    if (!pidfd) return nullptr;
    process = std::make_shared<Process>(io_, pidfd.release(), pid, processes_);
    processes_->emplace(pid, process);
    process->pidfd->async_wait(asio::posix::stream_descriptor::wait_read,
                               [weak = std::weak_ptr(process)](ErrorCode error) {
                                 const auto self = weak.lock();
                                 if (!error && self != nullptr) self->dead();
                               });
  }
  const unsigned key = process->next++;
  process->callbacks[key] = std::move(then);
  return Watch(new char, [process, key](const char* watch) {
    delete watch;
    process->callbacks.erase(key);
  });
}

std::size_t ProcessWatches::processes() const { return processes_->size(); }

}  // namespace switchyard::monitor
