#include "monitor/history/known_gpus.h"

#include <algorithm>

namespace switchyard::monitor::history {
namespace {

// Of a UUID, "GPU-" is no beginning that tells one from another.
constexpr std::size_t kLeastOfUuid = 5;

bool names(const std::string& word, const KnownGpus::Gpu& gpu) {
  return word == std::to_string(gpu.index) ||
         (word.size() >= kLeastOfUuid && gpu.uuid.rfind(word, 0) == 0);
}

}  // namespace

bool KnownGpus::read(const Sqlite& file, std::int64_t& steps) {
  Statement all(file, "SELECT key, uuid, name, number FROM gpus");
  while (all.row()) gpus_[all.integer(0)] = {all.text(1), all.text(2), all.integer(3)};
  steps += all.steps();
  return !all.failed();
}

std::optional<std::string> KnownGpus::unknown(const Words& words) const {
  for (const std::string& word : words) {
    const bool known = std::any_of(gpus_.begin(), gpus_.end(),
                                   [&](const auto& each) { return names(word, each.second); });
    if (!known) return word;
  }
  return std::nullopt;
}

std::string KnownGpus::condition(const Words& words) const {
  if (words.empty()) return "";
  std::string keys;
  for (const auto& [key, gpu] : gpus_) {
    const bool asked = std::any_of(words.begin(), words.end(),
                                   [&gpu = gpu](const auto& word) { return names(word, gpu); });
    if (asked) keys += (keys.empty() ? "" : ", ") + std::to_string(key);
  }
  // The plus keeps SQLite from looking rows up by GPU: jobs and hours tell far fewer.
  return "AND +b.gpu IN (" + keys + ") ";
}

}  // namespace switchyard::monitor::history
