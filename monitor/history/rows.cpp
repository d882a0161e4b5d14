#include "monitor/history/rows.h"

namespace switchyard::monitor::history {
namespace {

void merge(JobRow& row, JobRow later) {
  const std::int64_t started = row.started;
  const double lived = row.lived_seconds + later.lived_seconds;
  // Its last process has gone with its last row.
  if (later.command.empty()) later.command = std::move(row.command);
  if (later.slurm_job.empty()) later.slurm_job = std::move(row.slurm_job);
  row = std::move(later);
  row.started = started;
  row.lived_seconds = lived;
}

void merge(Bill& bill, const Bill& later) { bill.add(later); }
void merge(UnmanagedBill& bill, UnmanagedBill later) { bill.add(std::move(later)); }
void merge(double& seconds, double later) { seconds += later; }

template <typename Map>
std::size_t add_all(Map& to, Map later, std::size_t size, std::size_t most) {
  std::size_t lost = 0;
  for (auto& [key, row] : later) {
    const auto found = to.find(key);
    if (found != to.end()) {
      merge(found->second, std::move(row));
    } else if (size < most) {
      to.emplace(key, std::move(row));
      ++size;
    } else {
      ++lost;
    }
  }
  return lost;
}

}  // namespace

std::size_t Rows::add(Rows later, std::size_t most) {
  std::size_t lost = add_all(jobs, std::move(later.jobs), size(), most);
  lost += add_all(bills, std::move(later.bills), size(), most);
  lost += add_all(unmanaged, std::move(later.unmanaged), size(), most);
  for (EventRow& event : later.events) {
    if (events.size() < kMostEvents) {
      events.push_back(std::move(event));
    } else {
      ++lost;
    }
  }
  return lost + add_all(observed, std::move(later.observed), size(), most);
}

}  // namespace switchyard::monitor::history
