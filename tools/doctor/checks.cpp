#include "tools/doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/base/child.h"
#include "tools/base/co_run.h"
#include "tools/base/output.h"
#include "tools/base/places.h"
#include "tools/run/environment.h"

namespace switchyard::tools {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Indices of the GPUs for which `key` is true.
std::vector<std::string> gpus_with(const nlohmann::json& gpus, const char* key) {
  std::vector<std::string> found;
  for (const auto& gpu : gpus) {
    if (truth_of(gpu, key)) found.push_back(std::to_string(number_of(gpu, "index")));
  }
  return found;
}

}  // namespace

const char* to_string(Verdict verdict) {
  return verdict == Verdict::kOk ? "OK" : verdict == Verdict::kWarn ? "WARN" : "FAIL";
}

Check check_library() {
  const auto library = find_library();
  if (!library) {
    return {"library", Verdict::kFail, library.error().text, "build or install Switchyard again"};
  }
  // LD_BIND_NOW: a symbol that this system lacks is found now, not in the middle of a job.
  auto child = Child::start({"/bin/true"}, {{"LD_PRELOAD", *library}, {"LD_BIND_NOW", "1"}});
  const auto end = child.finish(std::chrono::seconds(10));
  if (end.exited && end.status == 0 && end.err.empty()) {
    return {"library", Verdict::kOk, fmt::format("{} loads", *library), ""};
  }
  return {"library", Verdict::kFail,
          fmt::format(
              "{} does not load: {}", *library,
              end.err.empty() ? "the program that it was loaded into failed" : first_line(end.err)),
          "use a library built for this system (glibc 2.28 or newer, x86-64)"};
}

Check check_driver(const DriverReport& report) {
  if (report.answered && report.found && report.init_result == 0 && report.devices > 0) {
    return {"driver", Verdict::kOk,
            fmt::format("{} answers, {}, {} GPU{}", report.path, cuda_version_text(report.version),
                        report.devices, report.devices == 1 ? "" : "s"),
            ""};
  }
  std::string remedy =
      "install NVIDIA's driver; without a GPU, build/fakecuda in LD_LIBRARY_PATH is a simulated "
      "one";
  if (const InitError* error = init_error(report.init_result)) {
    remedy = error->remedy;
  } else if (report.found && report.init_result > 0) {
    remedy = "look the number up among the CUresult values of NVIDIA's driver API";
  }
  return {"driver", Verdict::kFail, why_no_gpu(report), remedy};
}

Check check_calls(const DriverReport& report, int known) {
  // Without a driver that is said above.
  if (report.version <= known) {
    return {"calls", Verdict::kOk,
            fmt::format("the library knows the calls of {}", cuda_version_text(known)), ""};
  }
  return {"calls", Verdict::kWarn,
          fmt::format("the library knows the calls of {}, the driver is of {}: newer calls pass "
                      "unseen, so --swappable is refused",
                      cuda_version_text(known), cuda_version_text(report.version)),
          newer_driver_remedy(known)};
}

Check check_preloads(const std::string& variable, const std::string& file) {
  std::string others = preload_without(variable);
  std::string global;
  for (const char c : file) global += c == '\n' || c == '\t' ? ' ' : c;
  global = preload_without(global);
  if (!others.empty() && !global.empty()) others += ':';
  others += global;
  if (others.empty()) return {"preloads", Verdict::kOk, "no other preloaded library", ""};
  return {"preloads", Verdict::kWarn, fmt::format("other preloaded libraries: {}", others),
          "if a job misbehaves, try it without them (LD_PRELOAD, /etc/ld.so.preload)"};
}

Check check_no_monitor(const Error& error, const std::vector<std::string>& sockets) {
  std::string remedy = "start `switchyardd` by hand to see what stops it";
  if (error.code == kTimedOut) {
    // The message names the socket that was tried; who reads JSON may see the remedy alone.
    const auto named = std::find_if(sockets.begin(), sockets.end(), [&](const std::string& socket) {
      return error.text.find(socket) != std::string::npos;
    });
    remedy = fmt::format(
        "continue (`kill -CONT`) or end the process that listens at {}: see "
        "`ss -xlp`",
        named != sockets.end() ? *named : "that socket");
  } else if (error.code == kNoPermission || error.code == kUsage) {
    remedy.clear();  // the message says what to do
  }
  return {"monitor", Verdict::kFail, error.text, remedy};
}

Check check_driver_version(const nlohmann::json& gpus) {
  std::set<std::string> known;
  std::set<std::string> other;
  for (const auto& gpu : gpus) {
    const std::string version = text_of(gpu, "driver_version");
    if (truth_of(gpu, "simulated")) {
      known.insert(version);
    } else {
      (truth_of(gpu, "driver_tested") ? known : other).insert(version);
    }
  }
  if (other.empty()) {
    return {"driver version", Verdict::kOk,
            fmt::format("Switchyard was tested with {}", joined({known.begin(), known.end()})), ""};
  }
  return {
      "driver version", Verdict::kWarn,
      fmt::format("Switchyard was not tested with driver {}", joined({other.begin(), other.end()})),
      "see the check of slices below; Switchyard was tested with 580.x"};
}

Check check_means(const nlohmann::json& gpus) {
  std::vector<std::string> all;
  Verdict verdict = Verdict::kOk;
  for (const auto& gpu : gpus) {
    const std::string means = text_of(gpu, "means");
    if (means != "slice+gate") verdict = Verdict::kWarn;
    all.push_back(fmt::format("GPU {}: {} ({})", number_of(gpu, "index"), means,
                              text_of(gpu, "means_reason")));
  }
  return {"backend", verdict, joined(all),
          verdict == Verdict::kOk ? "" : "if that was chosen: `switchyard backend auto`"};
}

Check check_mps(const nlohmann::json& gpus) {
  const auto found = gpus_with(gpus, "mps");
  if (found.empty()) return {"mps", Verdict::kOk, "MPS is not active", ""};
  return {
      "mps", Verdict::kWarn,
      fmt::format("MPS is active on GPU {}: slices don't work under it, gates do", joined(found)),
      "for latency stop it: echo quit | nvidia-cuda-mps-control"};
}

Check check_mig(const nlohmann::json& gpus) {
  const auto found = gpus_with(gpus, "mig");
  if (found.empty()) return {"mig", Verdict::kOk, "MIG is not active", ""};
  return {"mig", Verdict::kWarn,
          fmt::format("MIG is active on GPU {}: each instance is a GPU of its own, not tested",
                      joined(found)),
          "if slices fail below, switch MIG off or share by instances"};
}

Check check_outside(const nlohmann::json& outside) {
  std::vector<std::string> found;
  bool old = false;
  for (const auto& process : outside) {
    const bool refused = number_of(process, "library_layout") != 0;
    old = old || refused;
    found.push_back(fmt::format("{} ({}, {}{})", number_of(process, "pid"),
                                text_of(process, "name"),
                                human_bytes(number_of(process, "memory_used_bytes")),
                                refused ? ", library of another version" : ""));
  }
  if (found.empty()) {
    return {"unmanaged", Verdict::kOk, "no unmanaged GPU process", ""};
  }
  return {"unmanaged", Verdict::kWarn, fmt::format("unmanaged GPU processes: {}", joined(found)),
          old ? "restart those with a library of another version; start the others with "
                "`switchyard run`"
              : "start them with `switchyard run`, or accept that their usage is not limited"};
}

Check check_islands(const nlohmann::json& jobs) {
  const auto companies = companies_of(tenants_of(jobs));
  if (companies.empty())
    return {"islands", Verdict::kOk, "no jobs that would gain by --co-run", ""};
  std::string text;
  for (const Company& company : companies) {
    text += (text.empty() ? "" : "; ") + company_text(company);
  }
  return {"islands", Verdict::kWarn, text,
          "start them with `switchyard run --co-run`, if a fault of one may end the others"};
}

}  // namespace switchyard::tools
