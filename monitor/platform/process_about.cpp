#include "monitor/platform/process_about.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <utility>

#include "monitor/platform/background.h"
#include "monitor/platform/owner.h"
#include "monitor/platform/process_stat.h"
#include "monitor/platform/processes.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

constexpr std::size_t kMostOfCommand = 256;

std::string command_of(pid_t pid) {
  std::ifstream from("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::string text(kMostOfCommand, '\0');
  from.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(from.gcount(), 0)));
  return text;
}

}  // namespace

std::string command_text(std::string bytes) {
  bytes.resize(std::min(bytes.size(), kMostOfCommand));
  while (!bytes.empty() && bytes.back() == '\0') bytes.pop_back();
  std::replace(bytes.begin(), bytes.end(), '\0', ' ');
  return printable(bytes);
}

std::uint64_t process_started(pid_t pid) {
  if (pid <= 0) return 0;
  const std::string word = word_of_stat("/proc/" + std::to_string(pid) + "/stat", kStatStarted);
  return std::strtoull(word.c_str(), nullptr, 10);
}

ProcessAbout about_process(pid_t pid) {
  if (pid <= 0) return {};
  ProcessAbout out;
  out.started = process_started(pid);
  out.uid = process_owner(pid);
  out.name = process_name(pid);
  out.container = container_id(pid);
  out.place = place_of(pid);
  return out;
}

struct CommandLines::Shared {
  std::mutex mutex;
  std::deque<Read> read;
  std::size_t waiting = 0;
  Background background;
};

CommandLines::CommandLines() : shared_(std::make_shared<Shared>()) {}
CommandLines::~CommandLines() = default;

void CommandLines::ask(pid_t pid, std::uint64_t started) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (started == 0 || shared_->waiting + shared_->read.size() >= kMost) return;
    ++shared_->waiting;
  }
  // The thread must not keep alive what ends it.
  const auto work = [weak = std::weak_ptr(shared_), pid, started] {
    std::string text = command_text(command_of(pid));
    if (process_started(pid) != started) text.clear();
    const auto shared = weak.lock();
    if (shared == nullptr) return;
    const std::lock_guard lock(shared->mutex);
    --shared->waiting;
    shared->read.push_back({pid, started, std::move(text)});
  };
  if (shared_->background.run(work, [] {})) return;
  const std::lock_guard lock(shared_->mutex);
  --shared_->waiting;
}

std::optional<CommandLines::Read> CommandLines::take() {
  shared_->background.finish();
  const std::lock_guard lock(shared_->mutex);
  if (shared_->read.empty()) return std::nullopt;
  Read out = std::move(shared_->read.front());
  shared_->read.pop_front();
  return out;
}

}  // namespace switchyard::monitor
