// The door to the GPUs (gpus.h) for a loop that must not stand still. The driver is asked on a
// thread of its own, and waited for only so long.
//
// Concept. NVML answers within a millisecond, as a rule. While a GPU is reset, or wakes up, it
// takes seconds. Then the loop would tell its clients nothing, and they would take it for dead. So
// the loop waits for at most a quarter of its time. A later answer serves the next question of the
// same kind, unless it is old by then. Until then there is none.
//
// Threading: one thread asks; another is asked behind it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "monitor/platform/gpus.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor {

class PatientGpus final : public Gpus {
 public:
  explicit PatientGpus(std::unique_ptr<Gpus> door);
  ~PatientGpus() override;  // waits for a moment; a driver that hangs is left alone
  PatientGpus(const PatientGpus&) = delete;
  PatientGpus& operator=(const PatientGpus&) = delete;

  std::string problem() const override;
  std::string driver_version() const override;
  const std::vector<GpuInfo>& list() const override;
  std::optional<GpuMemory> memory(std::size_t at) override;
  std::optional<std::vector<ProcessMemory>> processes(std::size_t at) override;
  std::optional<std::vector<ProcessLoad>> loads(std::size_t at) override;
  std::optional<GpuCondition> condition(std::size_t at) override;

 private:
  struct Shared;
  template <typename Value>
  struct Question;
  template <typename Value>
  std::optional<Value> ask(std::vector<Question<Value>>& questions, std::size_t at,
                           std::optional<Value> (Gpus::*call)(std::size_t));

  std::shared_ptr<Shared> shared_;
  Time patience_;  // how long the loop may wait now
  Time counted_at_;
};

}  // namespace switchyard::monitor
