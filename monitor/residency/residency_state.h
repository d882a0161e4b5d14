// Where a job's memory is, as people and other modules see it, and why it did not leave.
//
// Concept. The table (policy/job_residency.h) says what is wanted, and the clients say what is.
// This puts both together. It changes nothing.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "monitor/core/registry.h"
#include "monitor/policy/job_residency.h"

namespace switchyard::monitor {

// A job that has memory of which nothing can leave is never swapped.
enum class ResidencyState : std::uint8_t { kResident, kMoving, kSwapped, kWaiting };
ResidencyState residency_of(const Registry& registry, const Job& job);
// The same of its memory on one of its GPUs.
ResidencyState residency_on(const Registry& registry, const Job& job, std::size_t gpu);
// Whether the job has memory charged there.
bool uses(const Registry& registry, const Job& job, std::size_t gpu);
// Whether the job has memory on its GPUs and none of it is swappable.
bool nothing_leaves(const Registry& registry, const Job& job);
constexpr const char* to_string(ResidencyState where) {
  return where == ResidencyState::kMoving    ? "moving"
         : where == ResidencyState::kSwapped ? "swapped"
         : where == ResidencyState::kWaiting ? "waiting"
                                             : "resident";
}
inline bool wanted_out(const Job& job) { return job.memory->wanted_out.any(); }

// What keeps memory from leaving, for people.
std::string failure_text(std::uint32_t error, std::uint32_t result);
std::string failure_text(const residency::Failure& failure);

}  // namespace switchyard::monitor
