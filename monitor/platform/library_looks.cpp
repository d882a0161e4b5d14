#include "monitor/platform/library_looks.h"

#include <cstdint>
#include <map>
#include <mutex>

#include "monitor/platform/background.h"
#include "monitor/platform/process_about.h"
#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

// More than a machine's GPUs have at once. Beyond that all are looked at anew.
constexpr std::size_t kMostLooks = 1024;

}  // namespace

struct LibraryLooks::Shared {
  struct Look {
    std::uint64_t started = 0;  // of the process: another one with its number is looked at anew
    bool may_have = true;
    bool under_way = false;
  };
  std::mutex mutex;
  std::map<pid_t, Look> looks;
  Background background;
};

LibraryLooks::LibraryLooks() : shared_(std::make_shared<Shared>()) {}
LibraryLooks::~LibraryLooks() = default;

bool LibraryLooks::may_have(pid_t pid) {
  shared_->background.finish();
  const std::uint64_t started = process_started(pid);
  const std::lock_guard lock(shared_->mutex);
  auto& looks = shared_->looks;
  if (looks.size() >= kMostLooks && !looks.contains(pid)) looks.clear();
  Shared::Look& look = looks[pid];
  if (look.started != started) look = {.started = started, .under_way = look.under_way};
  const bool answer = look.may_have;
  if (look.under_way) return answer;
  // The thread must not keep alive what ends it.
  const auto work = [weak = std::weak_ptr(shared_), pid, started] {
    const bool may_have = may_be_managed(pid) || process_started(pid) != started;
    const auto shared = weak.lock();
    if (shared == nullptr) return;
    const std::lock_guard locked(shared->mutex);
    const auto found = shared->looks.find(pid);
    if (found == shared->looks.end()) return;
    found->second.under_way = false;
    if (found->second.started == started) found->second.may_have = may_have;
  };
  look.under_way = shared_->background.run(work, [] {});
  return answer;
}

}  // namespace switchyard::monitor
