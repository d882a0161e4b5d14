#include "tools/doctor/probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "tools/base/child.h"
#include "tools/base/knobs.h"
#include "tools/base/output.h"
#include "tools/base/places.h"

namespace switchyard::tools {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kReadyLimit{60000};  // two contexts at once on a busy machine
constexpr milliseconds kForceLimit{8000};   // until slices are in force
constexpr milliseconds kSettle{300};
constexpr milliseconds kMeasure{1500};
constexpr int kAttempts = 3;  // a busy machine may disturb one

constexpr char kName[] = "slices";

Check result(Verdict verdict, const std::string& what, const std::string& remedy) {
  return {kName, verdict, what, remedy};
}

struct Sample {
  double kernels = 0;
  double seconds = 0;
};

std::optional<Sample> sample(Child& worker) {
  std::string line;
  if (!worker.write_line("count") || !worker.read_line(line, milliseconds(5000))) return {};
  Sample taken;
  std::istringstream words(line);
  if (!(words >> taken.kernels >> taken.seconds)) return {};
  return taken;
}

class Pair {
 public:
  explicit Pair(const std::string& uuid)
      : names_{fmt::format("doctor-{}-heavy", ::getpid()),
               fmt::format("doctor-{}-light", ::getpid())},
        heavy_(start(names_[0], "4", uuid)),
        light_(start(names_[1], "1", uuid)) {}

  // Empty when both run, else why not.
  std::string wait_ready() {
    const std::string first = ready(heavy_);
    return first.empty() ? ready(light_) : first;
  }

  bool is_one_of_us(const std::string& name) const {
    return name == names_[0] || name == names_[1];
  }

  // Kernels per second of heavy and light over one measurement.
  std::optional<std::pair<double, double>> measure() {
    std::this_thread::sleep_for(kSettle);
    const auto heavy_before = sample(heavy_);
    const auto light_before = sample(light_);
    std::this_thread::sleep_for(kMeasure);
    const auto heavy = sample(heavy_);
    const auto light = sample(light_);
    if (!heavy_before || !light_before || !heavy || !light) return {};
    return std::pair(rate(*heavy_before, *heavy), rate(*light_before, *light));
  }

 private:
  static Child start(const std::string& name, const char* weight, const std::string& uuid) {
    const std::string self = own_program();
    return Child::start({self, "run", "--name", name, "--share", weight, "--priority", "normal",
                         "--require", "--", self, "doctor", "--worker", uuid},
                        no_settings());
  }

  // The caller's settings for jobs would be measured as well.
  static std::vector<std::pair<std::string, std::string>> no_settings() {
    std::vector<std::pair<std::string, std::string>> changes = {{"SWITCHYARD_DISABLE", ""},
                                                                {"SWITCHYARD_REQUIRE", ""}};
    for (const Knob& knob : knobs()) changes.emplace_back(knob.environment, "");
    return changes;
  }

  static std::string ready(Child& worker) {
    std::string line;
    if (worker.read_line(line, kReadyLimit)) return line == "ready" ? "" : line;
    const auto end = worker.finish(milliseconds(100));
    return end.err.empty() ? "the worker did not start in time"
                           : end.err.substr(0, end.err.find('\n'));
  }

  static double rate(const Sample& from, const Sample& to) {
    return to.seconds > from.seconds ? (to.kernels - from.kernels) / (to.seconds - from.seconds)
                                     : 0;
  }

  std::string names_[2];
  Child heavy_;
  Child light_;
};

const nlohmann::json* on_gpu(const nlohmann::json& job, const std::string& uuid) {
  for (const auto& gpu : list_of(job, "gpus")) {
    if (text_of(gpu, "uuid") == uuid) return &gpu;
  }
  return nullptr;
}

// The name of a job that works on this GPU now.
std::optional<std::string> somebody_works(MonitorClient& monitor, const std::string& uuid) {
  const auto listing = monitor.ask({{"op", "ps"}});
  if (!listing) return std::nullopt;
  for (const auto& job : list_of(*listing, "jobs")) {
    const auto* gpu = on_gpu(job, uuid);
    if (gpu != nullptr && truth_of(*gpu, "active")) return text_of(job, "name");
  }
  return std::nullopt;
}

enum class Force { kBoth, kRefused, kNotYet };

Force in_force(MonitorClient& monitor, const Pair& pair, const std::string& uuid) {
  const auto deadline = Clock::now() + kForceLimit;
  while (Clock::now() < deadline) {
    const auto listing = monitor.ask({{"op", "ps"}});
    int done = 0;
    if (!listing) return Force::kNotYet;
    for (const auto& job : list_of(*listing, "jobs")) {
      const auto* gpu = on_gpu(job, uuid);
      if (gpu == nullptr || !pair.is_one_of_us(text_of(job, "name"))) continue;
      if (text_of(*gpu, "slice_status") == "refused") return Force::kRefused;
      const auto wanted = number_of(*gpu, "compute_slice_us");
      done += wanted > 0 && wanted == number_of(*gpu, "slice_in_force_us") ? 1 : 0;
    }
    if (done == 2) return Force::kBoth;
    std::this_thread::sleep_for(milliseconds(50));
  }
  return Force::kNotYet;
}

Check measure(MonitorClient& monitor, const std::string& uuid, const std::string& title,
              bool expected_refusal) {
  Pair pair(uuid);
  if (const std::string why = pair.wait_ready(); !why.empty()) {
    return result(Verdict::kWarn, fmt::format("{}: slices not measured: {}", title, why),
                  "see to that first, then ask doctor again");
  }
  switch (in_force(monitor, pair, uuid)) {
    case Force::kRefused:
      return result(expected_refusal ? Verdict::kWarn : Verdict::kFail,
                    fmt::format("{}: the driver refuses slices: shares and priorities are not "
                                "enforced, memory quotas are",
                                title),
                    "use a tested driver (580.x) without MPS and outside gVisor");
    case Force::kNotYet:
      return result(Verdict::kFail,
                    fmt::format("{}: no slice came into force within {} s", title,
                                kForceLimit.count() / 1000),
                    "see the monitor's log beside its socket, and SWITCHYARD_LOG=debug in a job");
    case Force::kBoth:
      break;
  }
  Check best = result(Verdict::kFail, fmt::format("{}: the workers ended early", title),
                      "run doctor again; see dmesg for GPU errors");
  for (int i = 0; i < kAttempts && best.verdict != Verdict::kOk; ++i) {
    const auto rates = pair.measure();
    if (!rates) break;
    best = judge_ratio(title, rates->first, rates->second);
  }
  return best;
}

}  // namespace

Check judge_ratio(const std::string& gpu, double heavy_per_second, double light_per_second) {
  if (heavy_per_second <= 0 || light_per_second <= 0) {
    return result(
        Verdict::kFail,
        fmt::format("{}: weights 4 and 1 gave {:.0f} and {:.0f} kernels/s: one job "
                    "stands still",
                    gpu, heavy_per_second, light_per_second),
        "switch slices off with `switchyard backend none` and report the driver's version");
  }
  const double got = heavy_per_second / light_per_second;
  const bool fine = std::abs(got / kProbeAsked - 1) <= kProbeTolerance;
  const std::string what =
      fmt::format("{}: asked {:.0f} : 1, got {:.2f} : 1 ({:.0f} and {:.0f} kernels/s of 100 us)",
                  gpu, kProbeAsked, got, heavy_per_second, light_per_second);
  if (fine) return result(Verdict::kOk, what + ": slices are accepted and effective", "");
  return result(Verdict::kFail, what + ": slices are accepted but not effective",
                "close other GPU programs and ask again; else use a tested driver (580.x)");
}

Check check_slices(MonitorClient& monitor, const nlohmann::json& gpu) {
  const std::string uuid = text_of(gpu, "uuid", "");
  const std::string title = fmt::format("GPU {}", number_of(gpu, "index"));
  const std::string means = text_of(gpu, "means");
  if (means.find("slice") == std::string::npos) {
    return result(Verdict::kWarn,
                  fmt::format("{}: {}: {}", title,
                              means == "none" ? "shares are not enforced"
                                              : "shares are enforced by gates alone",
                              text_of(gpu, "means_reason")),
                  "if that was chosen: `switchyard backend auto`");
  }
  if (const auto busy = somebody_works(monitor, uuid)) {
    return result(Verdict::kWarn,
                  fmt::format("{}: slices not measured, because job {} is working", title, *busy),
                  "ask doctor again when the GPU is idle");
  }
  return measure(monitor, uuid, title, truth_of(gpu, "mps"));
}

}  // namespace switchyard::tools
