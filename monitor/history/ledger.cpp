#include "monitor/history/ledger.h"

#include <algorithm>
#include <utility>

#include "monitor/core/lanes.h"
#include "monitor/platform/process_end.h"
#include "monitor/platform/processes.h"

namespace switchyard::monitor::history {
namespace {

// A monitor that stood still knows nothing of that time (statistics/usage.cpp).
constexpr Time kLongestSpan = std::chrono::seconds(2);
// A page may say anything: a sum of such counts stays one that a double and the tools can hold.
constexpr std::uint64_t kMostCounted = 1ull << 50;

double came(std::uint64_t now, std::uint64_t before) {
  return now > before ? static_cast<double>(std::min(now - before, kMostCounted)) : 0;
}

}  // namespace

void Ledger::records_to(Sink sink, Wall wall) {
  sink_ = std::move(sink);
  wall_ = std::move(wall);
}

Ledger::Counts Ledger::counts_of(const Client& client, unsigned lane) {
  const LaneReport report = client.page->report(lane);
  const MemoryReport memory = client.page->memory(lane);
  return {.copied = report.link_bytes + report.device_bytes,
          .swapped = memory.moved_out_bytes + memory.moved_in_bytes,
          .launches = report.launches + report.graph_launches,
          .refusals = report.refusals};
}

void Ledger::joined(const Client& client, bool rejoins) {
  if (!sink_ || client.observer) return;
  for (const auto& [lane, state] : client.lanes) lanes_[{client.id, lane}].rejoined = rejoins;
}

void Ledger::add_counts(const Client& client, unsigned lane, Bill& bill) {
  Lane& known = lanes_[{client.id, lane}];
  const Counts counts = counts_of(client, lane);
  if (known.rejoined && !counts.any()) return;  // it has not carried them over yet
  const Counts before = std::exchange(known.counts, counts);
  if (std::exchange(known.rejoined, false)) return;
  bill.copied_bytes += came(counts.copied, before.copied);
  bill.swapped_bytes += came(counts.swapped, before.swapped);
  bill.launches += came(counts.launches, before.launches);
  bill.refusals += came(counts.refusals, before.refusals);
}

void Ledger::leaves(const Client& client) {
  const auto job = registry_.jobs().find(client.job);
  if (!sink_ || job == registry_.jobs().end() || client.observer) return;
  Entry& entry = entry_of(job->second);
  for (const auto& [lane, state] : client.lanes) {
    add_counts(client, lane, entry.left[state.gpu]);
    lanes_.erase({client.id, lane});
  }
}

Ledger::Entry& Ledger::entry_of(const Job& job) {
  const auto [at, fresh] = jobs_.try_emplace(job.key);
  if (fresh) {
    at->second.started = wall_();
    at->second.lived_until = job.since;
  }
  return at->second;
}

void Ledger::add_memory(const Job& job, std::map<std::size_t, Bill>& bills, double span) {
  std::map<std::size_t, double> bytes;
  for_lanes(registry_, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    add_counts(client, lane, bills[state.gpu]);
    const Account::Holding* holding = gpus_[state.gpu].account.holding(client.id);
    if (holding == nullptr) return;
    bytes[state.gpu] += static_cast<double>(holding->resident() + holding->overhead);
  });
  const status::JobStatus& status = statuses_.of(job);
  for (const auto& [gpu, held] : bytes) {
    const auto row = std::find_if(status.gpus.begin(), status.gpus.end(),
                                  [gpu = gpu](const auto& each) { return each.gpu == gpu; });
    Bill& bill = bills[gpu];
    bill.peak_bytes = std::max(bill.peak_bytes, held);
    bill.memory_byte_seconds += held * span;
    const bool idle = row != status.gpus.end() && row->status.code.state == status::State::kIdle;
    if (idle) bill.idle_byte_seconds += held * span;
  }
}

void Ledger::add_usage(const Job& job, Entry& entry, std::map<std::size_t, Bill>& bills) {
  const Usage::Sums& sums = usage_.of(job);
  for (const auto& [gpu, had] : sums.gpus) {
    OnGpu& before = entry.gpus[gpu];
    bills[gpu].gpu_seconds += std::max(had.gpu_seconds - before.gpu_seconds, 0.0);
    bills[gpu].estimated_seconds += std::max(had.estimated_seconds - before.estimated_seconds, 0.0);
    before.gpu_seconds = had.gpu_seconds;
    before.estimated_seconds = had.estimated_seconds;
  }
  for (const auto& [gpu, times] : sums.times) {
    OnGpu& before = entry.gpus[gpu];
    for (const auto& [code, span] : times) {
      const double passed = seconds(span - std::exchange(before.times[code], span));
      if (passed > 0) bills[gpu].seconds[code] += passed;
    }
  }
}

void Ledger::sample(const Job& job, Time now, std::int64_t wall, Rows& rows) {
  Entry& entry = entry_of(job);
  const Time passed = std::max(now - entry.lived_until, Time{0});
  entry.lived_until = std::max(entry.lived_until, now);
  JobRow row{.id = job.id, .name = job.name, .user = user_name(job.uid), .uid = job.uid};
  row.command = job.command;
  row.slurm_job = job.place.slurm_job;
  row.found_again = !job.asked.has_value();
  row.started = entry.started;
  row.lived_seconds = seconds(passed);
  for (const ClientId id : job.clients) {
    const auto client = registry_.clients().find(id);
    if (!row.command.empty() || client == registry_.clients().end()) break;
    row.command = client->second->process;
  }
  std::map<std::size_t, Bill> bills = std::exchange(entry.left, {});
  add_memory(job, bills, seconds(std::min(passed, kLongestSpan)));
  add_usage(job, entry, bills);
  for (auto& [gpu, bill] : bills) {
    if (!bill.empty()) rows.bills[{wall / kHourSeconds, job.key, gpu}].add(bill);
  }
  rows.jobs[job.key] = std::move(row);
}

void Ledger::sample_unmanaged(std::int64_t wall, Rows& rows) {
  std::map<UnmanagedKey, UnmanagedBill> bills;
  for (const auto& [uid, gpus] : unmanaged_.users()) {
    for (const auto& [gpu, sums] : gpus) {
      const Unmanaged::Sums before = std::exchange(unmanaged_before_[uid][gpu], sums);
      if (sums.byte_seconds == before.byte_seconds && sums.gpu_seconds == before.gpu_seconds) {
        continue;
      }
      UnmanagedBill& bill = bills[{wall / kHourSeconds, uid, gpu}];
      bill.user = uid == HistoryEvent::kNobody ? "" : user_name(uid);
      bill.gpu_seconds = sums.gpu_seconds - before.gpu_seconds;
      bill.memory_byte_seconds = sums.byte_seconds - before.byte_seconds;
      bill.idle_byte_seconds = sums.idle_byte_seconds - before.idle_byte_seconds;
    }
  }
  for (const auto& [pid, process] : unmanaged_.processes()) {
    for (const auto& [gpu, on] : process.gpus) {
      const auto bill = bills.find({wall / kHourSeconds, user_of(process), gpu});
      if (bill == bills.end() || !on.billed) continue;
      bill->second.peak_bytes = std::max(bill->second.peak_bytes, static_cast<double>(on.bytes));
    }
  }
  rows.unmanaged = std::move(bills);
}

void Ledger::ends(const Job& job, Time now) {
  if (!sink_) return;
  Rows rows;
  const std::int64_t wall = wall_();
  sample(job, now, wall, rows);
  JobRow& row = rows.jobs[job.key];
  row.ended = std::max(wall, row.started);
  if (job.wait_status) row.exit = end_text(*job.wait_status);
  jobs_.erase(job.key);
  sink_(std::move(rows));
}

void Ledger::tick(Time now) {
  if (now - sampled_at_ >= kEvery) sample(now);
}

void Ledger::sample(Time now) {
  if (!sink_) return;
  const Time before = std::exchange(sampled_at_, now);
  const std::int64_t wall = wall_();
  Rows rows;
  for (const auto& [key, job] : registry_.jobs()) sample(job, now, wall, rows);
  sample_unmanaged(wall, rows);
  const double span = seconds(std::min(now - before, kLongestSpan));
  for (std::size_t gpu = 0; before != Time{0} && span > 0 && gpu < gpus_.size(); ++gpu) {
    rows.observed[{wall / kHourSeconds, gpu}] += span;
  }
  sink_(std::move(rows));
}

}  // namespace switchyard::monitor::history
