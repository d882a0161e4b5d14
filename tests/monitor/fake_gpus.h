// GPUs that exist only in numbers: the door of monitor/platform/gpus.h for tests.
//
// Threading: one thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "monitor/platform/gpus.h"

namespace switchyard::monitor::test {

inline constexpr std::uint64_t kMiB = 1ull << 20;
inline constexpr std::uint64_t kGiB = 1ull << 30;

inline Uuid uuid_of(unsigned char index) {
  Uuid uuid{};
  uuid[0] = 0xaa;
  uuid[15] = index;
  return uuid;
}

class FakeGpus final : public Gpus {
 public:
  explicit FakeGpus(unsigned count = 1, std::uint64_t bytes = 4 * kGiB) {
    for (unsigned i = 0; i < count; ++i) {
      GpuInfo info;
      info.uuid = uuid_of(static_cast<unsigned char>(i));
      info.uuid_text = "GPU-aa000000-0000-0000-0000-0000000000" + std::string(i < 16 ? "0" : "") +
                       "0123456789abcdef"[i % 16];
      info.index = i;
      info.name = "Fake";
      infos.push_back(info);
      memories.push_back({bytes, 0, 0});
      uses.emplace_back();
    }
  }

  std::string problem() const override { return infos.empty() ? "no GPU here" : ""; }
  std::string driver_version() const override { return driver; }
  const std::vector<GpuInfo>& list() const override { return infos; }

  std::optional<GpuMemory> memory(std::size_t at) override {
    if (fails) return std::nullopt;
    GpuMemory out = memories[at];
    out.used_bytes += unlisted;
    for (const auto& [pid, bytes] : uses[at]) out.used_bytes += bytes;
    return out;
  }
  std::optional<std::vector<ProcessMemory>> processes(std::size_t at) override {
    ++readings;
    if (fails) return std::nullopt;
    if (const auto happens = std::exchange(while_asked, nullptr)) happens();
    std::vector<ProcessMemory> out;
    for (const auto& [pid, bytes] : uses[at]) {
      if (lists_processes) out.push_back({pid, bytes, !draws.contains(pid)});
    }
    return out;
  }
  std::optional<std::vector<ProcessLoad>> loads(std::size_t at) override {
    if (at != 0) return std::vector<ProcessLoad>{};
    return load;
  }

  std::optional<GpuCondition> condition(std::size_t at) override {
    return at == 0 ? conditions : std::nullopt;
  }

  std::string driver = "580.1-simulated";
  std::vector<GpuInfo> infos;
  std::vector<GpuMemory> memories;
  std::vector<std::map<pid_t, std::uint64_t>> uses;
  std::set<pid_t> draws;  // and do nothing else
  std::optional<std::vector<ProcessLoad>> load;
  std::optional<GpuCondition> conditions;  // of the first
  std::uint64_t unlisted = 0;
  bool lists_processes = true;
  bool fails = false;
  int readings = 0;
  std::function<void()> while_asked;  // once
};

}  // namespace switchyard::monitor::test
