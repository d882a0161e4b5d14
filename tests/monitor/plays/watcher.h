// Notes what a monitor does, in four columns. Orders are the words that its processes read, and
// listings are its answers to people. Events and bills (ledger and metrics) are what it keeps.
//
// Threading: one thread, the test's.
#pragma once

#include <list>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "monitor/export/collector.h"
#include "monitor/export/prometheus.h"
#include "tests/monitor/plays/plain.h"
#include "tests/monitor/plays/player.h"
#include "tests/support/plays.h"

namespace switchyard::monitor::test {

class Watcher {
 public:
  // REQUIRES: let_go() is called before this monitor ends.
  void watch(Rig& rig) {
    rig_ = &rig;
    collector_.emplace(rig.monitor, "/nowhere");
    rig.monitor.ledger().records_to([this](const history::Rows& rows) { bills(rows); },
                                    [&rig] { return 490'000 * 3600 + rig.now / seconds(1); });
    seen_ = rig.monitor.journal().rare().newest();  // that a monitor begins, by its pid
    seen_of_turns_ = 0;
  }
  void let_go() { collector_.reset(); }

  void note(const std::string& column, const std::string& line) { columns_[column].note(line); }
  void orders(const std::list<Player>& players) {
    for (const Player& each : players) {
      const abi::Page& page = each.shim().page();
      std::ostringstream line;
      line << each.pid() << " cut " << page.process.cut << " target "
           << page.communicators[0].target << " head " << page.head.paused << " told "
           << each.verdicts;
      for (unsigned at = 0; at < each.lanes(); ++at) {
        const abi::Lane& lane = page.lanes[at];
        const abi::Gate& gate = page.gates[at];
        const abi::Residency& words = page.residencies[at];
        line << " | quota " << lane.quota_bytes << " others " << lane.others_used_bytes << " free "
             << lane.available_bytes << " slices " << lane.compute_slice_us << ' '
             << lane.copy_slice_us << " credit " << lane.credit_bytes << " attention "
             << lane.attention << " unpin " << lane.unpin << " precopy " << lane.precopy << " to "
             << lane.shall_be_on << " gate " << gate.closed << ' ' << gate.spacing_us << ' '
             << gate.ring_after << ' ' << gate.paused << ' ' << gate.pause_until_ns << " limited "
             << words.limited << ' ' << words.limit_bytes << " host " << words.host_limit_bytes
             << " gives " << words.gives << " takes " << words.takes << " soon " << words.soon_bytes
             << " park " << words.park_bytes << ' ' << words.park_lane << ' ' << words.park_only;
      }
      note("orders", line.str());
    }
  }
  void listings() {
    for (const json& each :
         {json{{"op", "ps"}, {"iterations", true}, {"latency", true}}, json{{"op", "status"}},
          json{{"op", "ps"}, {"after", 2}, {"brief", true}}, json{{"op", "config"}}}) {
      note("listing", plain(rig_->ask(each)).dump());
    }
    const json listed = rig_->ask({{"op", "events"}, {"seconds", 5}});
    for (const json& event : listed["events"]) {
      if (event["kind"] == "monitor begins") continue;  // its text has the PID of this process
      note("listing", event["kind"].dump() + event["text"].dump());
    }
    metrics::Snapshot seen = collector_->look(rig_->now);
    seen.version = seen.hostname = "";
    seen.start_time_seconds = 0;
    note("bills", metrics::render(seen));
  }
  // Without the words for users, whose names are the machine's.
  void events() {
    const Journal& journal = rig_->monitor.journal();
    events(journal.rare(), seen_);
    events(journal.timeline(), seen_of_turns_);
  }
  const test_support::Columns& columns() const { return columns_; }

 private:
  void events(const EventRing& ring, std::uint64_t& last) {
    std::vector<HistoryEvent> fresh;
    last = ring.read(last, fresh, 4096).last;
    for (const HistoryEvent& each : fresh) {
      std::ostringstream line;
      line << each.at_ns << ' ' << key_of(each.kind) << " of " << each.job << " by " << each.by_job
           << ' ' << each.uid << ' ' << each.pid << " gpu " << each.gpu << " value " << each.value
           << " from " << +each.from_state << ' ' << +each.from_reason << " to " << +each.state
           << ' ' << +each.reason;
      note("events", line.str());
    }
  }
  void bills(const history::Rows& rows) {
    for (const auto& [key, bill] : rows.bills) {
      std::ostringstream line;
      line.precision(5);
      line << "bill of " << key.job << " gpu " << key.gpu << ": " << bill.gpu_seconds << ' '
           << bill.estimated_seconds << " bytes " << bill.memory_byte_seconds << ' '
           << bill.idle_byte_seconds << ' ' << bill.peak_bytes << " copied " << bill.copied_bytes
           << " swapped " << bill.swapped_bytes << " launches " << bill.launches << " refusals "
           << bill.refusals;
      for (const auto& [code, span] : bill.seconds) {
        line << ' ' << +static_cast<unsigned char>(code.state) << '/'
             << +static_cast<unsigned char>(code.reason) << ' ' << span;
      }
      note("bills", line.str());
    }
    for (const auto& [key, job] : rows.jobs) {
      std::ostringstream line;
      line.precision(5);
      line << "job " << key << ' ' << job.id << ' ' << job.name << " found " << job.found_again
           << " started " << job.started << " ended " << job.ended << " lived "
           << job.lived_seconds;
      note("bills", line.str());
    }
    for (const auto& [key, bill] : rows.unmanaged) {
      std::ostringstream line;
      line.precision(5);
      line << "unmanaged on " << key.gpu << ": " << bill.gpu_seconds << ' '
           << bill.memory_byte_seconds << ' ' << bill.idle_byte_seconds << ' ' << bill.peak_bytes;
      note("bills", line.str());
    }
  }

  Rig* rig_ = nullptr;
  std::optional<metrics::Collector> collector_;
  test_support::Columns columns_{{"orders", {}}, {"listing", {}}, {"events", {}}, {"bills", {}}};
  std::uint64_t seen_ = 0, seen_of_turns_ = 0;
};

}  // namespace switchyard::monitor::test
