#include "tools/doctor/doctor.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "switchyard/known_calls.h"
#include "tools/base/sockets.h"
#include "tools/doctor/around.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/installation.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/worker.h"
#include "tools/run/autostart.h"

namespace switchyard::tools {
namespace {

struct Options {
  bool json = false;
  bool no_probe = false;
  std::string worker;  // the UUID of the GPU to keep busy: doctor's own child
};

constexpr char kExamples[] = R"(Examples:
  switchyard doctor
  switchyard doctor --no-probe
      skip the measurement of time slices (about 3 s per GPU)
  switchyard doctor --json | jq '.checks[] | select(.verdict != "OK")'

Each line is OK, WARN or FAIL, with one remedy below it where there is one. The command starts a
monitor when none answers. Exit status: 0 when nothing FAILs, else 1.)";

std::string contents(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Prints each check as soon as it is known, for the measurement takes a while.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  void add(const Check& check) {
    failed_ = failed_ || check.verdict == Verdict::kFail;
    listing_.push_back(
        {{"name", check.name},
         {"verdict", to_string(check.verdict)},
         {"what", check.what},
         {"remedy", check.remedy.empty() ? nlohmann::json() : nlohmann::json(check.remedy)}});
    if (json_) return;
    const Tone tone = check.verdict == Verdict::kOk     ? Tone::kGood
                      : check.verdict == Verdict::kWarn ? Tone::kWarning
                                                        : Tone::kBad;
    const std::string verdict = fmt::format("{:<4}", to_string(check.verdict));
    fmt::print("{}  {:<14}  {}\n", paint(tone, verdict), check.name, check.what);
    if (!check.remedy.empty())
      fmt::print("{:22}{}\n", "", paint(Tone::kFaint, arrow() + (" " + check.remedy)));
    output_written();
  }

  void add(const std::vector<Check>& checks) {
    for (const Check& check : checks) add(check);
  }

  int finish() {
    if (json_) print_json({{"checks", listing_}, {"failed", failed_}});
    return failed_ ? kFailure : kOk;
  }

 private:
  bool json_;
  bool failed_ = false;
  nlohmann::json listing_ = nlohmann::json::array();
};

void check_through_monitor(Report& report, MonitorClient& monitor, bool probe) {
  auto version = monitor.ask({{"op", "version"}});
  report.add(check_monitor_version(monitor.socket(), version ? text_of(*version, "version") : "-"));
  const auto status = monitor.ask({{"op", "status"}});
  const auto jobs = monitor.ask({{"op", "ps"}});
  if (!status || !jobs) {
    report.add(
        {"listings", Verdict::kFail, (status ? jobs : status).error().text, "restart the monitor"});
    return;
  }
  report.add(check_job_libraries(look_at_job_libraries(list_of(*jobs, "jobs"))));
  const auto& gpus = list_of(*status, "gpus");
  if (gpus.empty()) {
    report.add({"gpus", Verdict::kFail, "the monitor sees no GPU",
                "see the driver's check above; then restart the monitor"});
    return;
  }
  report.add(check_driver_version(gpus));
  report.add(check_means(gpus));
  report.add(check_mps(gpus));
  report.add(check_mig(gpus));
  report.add(check_outside(list_of(*jobs, "outside")));
  report.add(check_islands(list_of(*jobs, "jobs")));
  for (const auto& gpu : gpus) {
    if (probe) report.add(check_slices(monitor, gpu));
  }
}

int doctor(const Options& options) {
  Report report(options.json);
  report.add(check_library());
  const Installation installation = look_at_installation();
  report.add(check_installation(installation));
  report.add(check_units(installation));
  report.add(check_stale_preloads(look_at_preloads()));
  const DriverReport driver = ask_driver();
  report.add(check_driver(driver));
  report.add(check_calls(driver, kKnownVersion));
  const char* preload = std::getenv("LD_PRELOAD");
  report.add(check_preloads(preload != nullptr ? preload : "", contents("/etc/ld.so.preload")));
  auto monitor = connect_or_start();
  // A monitor that was just started has taken the place of a socket that was left.
  report.add(check_places(look_at_places()));
  if (monitor) {
    check_through_monitor(report, *monitor, !options.no_probe && driver.devices > 0);
  } else {
    report.add(check_no_monitor(monitor.error(), candidate_sockets()));
  }
  return report.finish();
}

}  // namespace

void add_doctor(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("doctor", "check this machine, and say what to do", kExamples)
      .flag("--json", options->json, "print JSON")
      .flag("--no-probe", options->no_probe, "do not measure whether time slices are effective")
      .hidden_option("--worker", options->worker)
      .socket_option()
      .acts([options] {
        return options->worker.empty() ? doctor(*options) : run_worker(options->worker);
      });
}

}  // namespace switchyard::tools
