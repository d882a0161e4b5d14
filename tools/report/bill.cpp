#include "tools/report/bill.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/base/output.h"
#include "tools/report/tables.h"

namespace switchyard::tools {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEndsWithin{6000};
constexpr milliseconds kAskEvery{50};

bool has_ended(const nlohmann::json& row) { return !text_of(row, "exit", "").empty(); }

}  // namespace

Result<nlohmann::json> await_bills(MonitorClient& monitor, const nlohmann::json& request) {
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  for (;;) {
    const auto reply = monitor.ask(request);
    if (!reply) return reply.error();
    const auto& rows = list_of(*reply, "rows");
    const bool ended = !rows.empty() && std::all_of(rows.begin(), rows.end(), has_ended);
    if (ended || std::chrono::steady_clock::now() >= until) return rows;
    std::this_thread::sleep_for(kAskEvery);
  }
}

std::string ended_bill_text(const nlohmann::json& row) {
  return bill_text(row) + (has_ended(row) ? "" : "; it has not ended yet");
}

}  // namespace switchyard::tools
