#include "monitor/platform/kubernetes.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "monitor/platform/background.h"
#include "monitor/platform/owner.h"

namespace switchyard::monitor {
namespace {

constexpr std::size_t kContainerDigits = 64;
constexpr std::string_view kLogEnding = ".log";

// Of DNS, as the names of pods, namespaces and containers are. So nothing else comes into labels.
bool is_dns_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '.';
  });
}

PodsById read_links(const std::string& folder) {
  PodsById out;
  std::error_code error;
  std::size_t links = 0;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (++links > Pods::kMostLinks) break;
    if (auto found = pod_names_in(at->path().filename().native())) out.insert(std::move(*found));
  }
  return out;
}

}  // namespace

std::optional<std::pair<std::string, PodNames>> pod_names_in(std::string_view link) {
  if (link.size() <= kLogEnding.size() + kContainerDigits + 1) return std::nullopt;
  if (link.substr(link.size() - kLogEnding.size()) != kLogEnding) return std::nullopt;
  link.remove_suffix(kLogEnding.size());
  const std::string_view id = link.substr(link.size() - kContainerDigits);
  link.remove_suffix(kContainerDigits);
  const std::size_t first = link.find('_'), second = link.find('_', first + 1);
  if (container_name(id) != id || link.back() != '-' || first == link.npos || second == link.npos) {
    return std::nullopt;
  }
  link.remove_suffix(1);
  const std::string_view pod = link.substr(0, first);
  const std::string_view name_space = link.substr(first + 1, second - first - 1);
  const std::string_view container = link.substr(std::min(second + 1, link.size()));
  if (!is_dns_name(pod) || !is_dns_name(name_space) || !is_dns_name(container)) return std::nullopt;
  return std::pair(std::string(id),
                   PodNames{std::string(pod), std::string(name_space), std::string(container)});
}

struct Pods::Shared {
  std::mutex mutex;
  std::optional<PodsById> read;
  bool reading = false;
  Background background;
};

Pods::Pods(std::string folder) : shared_(std::make_shared<Shared>()), folder_(std::move(folder)) {}
Pods::~Pods() = default;

PodNames Pods::of(const std::string& container_id, Time now) {
  if (container_id.empty()) return {};
  shared_->background.finish();
  const std::lock_guard lock(shared_->mutex);
  if (shared_->read) known_ = *std::exchange(shared_->read, std::nullopt);
  if (const auto found = known_.find(container_id); found != known_.end()) return found->second;
  if (shared_->reading || (read_at_ && now - *read_at_ < kReadAgain)) return {};
  read_at_ = now;
  // The thread must not keep alive what ends it.
  const auto work = [weak = std::weak_ptr(shared_), folder = folder_] {
    PodsById pods = read_links(folder);
    const auto shared = weak.lock();
    if (shared == nullptr) return;
    const std::lock_guard taken(shared->mutex);
    shared->reading = false;
    shared->read = std::move(pods);
  };
  shared_->reading = shared_->background.run(work, [] {});
  return {};
}

}  // namespace switchyard::monitor
