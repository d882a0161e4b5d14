#include "tools/why/running.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/stats/waits.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// So much of its GPUs is all that a job can expect.
constexpr double kEnough = 0.9;
// What takes less of the time does not make it slow.
constexpr double kNotable = 0.1;

struct Lacked {
  std::string reason;  // a key of waits_ratio: of what it lacked most
  double ratio = 0;
  double cpu = 0;  // nothing held it, and it brought no work
};

double had_of(const Seen& seen) {
  const double seconds = real_of(seen.lately, "interval_seconds").value_or(0);
  const json& gpus = list_of(seen.job, "gpus");
  const auto used = std::count_if(gpus.begin(), gpus.end(),
                                  [](const json& gpu) { return truth_of(gpu, "active"); });
  const double all = seconds * static_cast<double>(std::max<std::ptrdiff_t>(used, 1));
  return all <= 0 ? 0 : std::min(real_of(seen.lately, "gpu_seconds").value_or(0) / all, 1.0);
}

Lacked most_lacked(const Seen& seen) {
  Lacked out;
  out.cpu = 1 - had_of(seen);
  const auto waits = seen.lately.find("waits_ratio");
  if (waits == seen.lately.end() || !waits->is_object()) return out;
  for (const auto& [reason, share] : waits->items()) {
    const double ratio = share.is_number() ? share.get<double>() : 0;
    out.cpu -= ratio;
    if (ratio <= out.ratio) continue;
    out.reason = reason;
    out.ratio = ratio;
  }
  return out;
}

int percent(double ratio) { return static_cast<int>(std::lround(100 * ratio)); }

// The job that had most of the slices for which this one waited.
std::string slices_help(const Seen& seen) {
  const json* most = nullptr;
  for (const json& each : list_of(seen.lately, "slices_of")) {
    const double ratio = real_of(each, "ratio").value_or(0);
    if (most == nullptr || ratio > real_of(*most, "ratio").value_or(0)) most = &each;
  }
  if (most == nullptr) return share_help(seen, nullptr);
  const json* other = seen.find(text_of(*most, "job", ""));
  const std::string user = other != nullptr ? text_of(*other, "user") : "somebody";
  return fmt::format("{} had most of that: {}%. {}", capital(named(text_of(*most, "name"), user)),
                     percent(real_of(*most, "ratio").value_or(0)), share_help(seen, other));
}

}  // namespace

std::string lately_text(const Seen& seen) {
  if (!seen.lately.is_object() || real_of(seen.lately, "interval_seconds").value_or(0) <= 0) {
    return "";
  }
  const bool guessed = real_of(seen.lately, "gpu_seconds_estimated").value_or(0) > 0;
  const std::string lacked = waits_text(seen.lately);
  return fmt::format(" In the last {:.1f} s it had {}{}% of the GPU's time{}.",
                     real_of(seen.lately, "interval_seconds").value_or(0), guessed ? "about " : "",
                     percent(had_of(seen)), lacked == "-" ? "" : ", and waited for: " + lacked);
}

std::string running(const Seen& seen) {
  const std::string begins = fmt::format("{} runs", seen.name());
  if (!seen.lately.is_object()) return begins + ".";
  if (had_of(seen) >= kEnough) {
    return fmt::format("{}, and nothing holds it: its own work takes the time.{}", begins,
                       lately_text(seen));
  }
  const Lacked lack = most_lacked(seen);
  if (lack.ratio <= kNotable) {
    return fmt::format(
        "{}, and nothing of Switchyard's holds it.{} For the rest its CPU brought no "
        "work: its input, or its waits for other ranks, take that time.",
        begins, lately_text(seen));
  }
  const auto with = [&](const std::string& what, const std::string& help) {
    return fmt::format("{}, slowed down by {}.{} {}{}", begins, what, lately_text(seen), help,
                       lack.cpu > kNotable ? " For the rest its CPU brought no work." : "");
  };
  if (lack.reason == "slices") return with("time slices of other jobs", slices_help(seen));
  if (lack.reason == "turn") return with("turns of other jobs", share_help(seen, seen.other()));
  if (lack.reason == "limit") return with("its limit", limit_help(seen));
  if (lack.reason == "guard") {
    const json& guarded = list_of(seen.job, "held_back_for");
    const std::string name =
        !guarded.empty() && guarded[0].is_string() ? guarded[0].get<std::string>() : "";
    return with("another job's --guard", guard_help(name));
  }
  return fmt::format("{} again.{} What it waited for is over.", begins, lately_text(seen));
}

}  // namespace switchyard::tools
