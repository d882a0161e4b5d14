#include "tools/status/status.h"

#include <fmt/format.h>

#include "tools/base/monitor_client.h"
#include "tools/base/table.h"
#include "tools/base/unserved.h"

namespace switchyard::tools {
namespace {

constexpr char kExamples[] = R"(Examples:
  switchyard status
  switchyard status --json | jq '.gpus[].means'

BACKEND says what enforces shares: slice (hardware time slices), gate (work stopped before the GPU),
both or none; the reason stands below the table. RESERVED is the sum of the quotas. UNMANAGED is the
memory of processes without Switchyard. Without a monitor, the GPUs are listed as NVML has them.
Exit status: 0, also without a monitor; 2 a socket path that is too long, 3 nothing listens at a
socket that was named or left behind, 5 that monitor is not to be trusted, 7 it does not answer.)";

void print_monitor(const nlohmann::json& monitor) {
  fmt::print("monitor {} of {}: pid {}, up {}, {}\n", text_of(monitor, "version"),
             text_of(monitor, "user"), number_of(monitor, "pid"),
             human_seconds(static_cast<double>(number_of(monitor, "uptime_seconds"))),
             truth_of(monitor, "persist") ? "persistent" : "ends after its last job");
  fmt::print("socket  {}\n", text_of(monitor, "socket"));
  fmt::print("policy  {}\n", rules_text(monitor));
  const std::string means = text_of(monitor, "means");
  if (means == "none") {
    fmt::print("{}\n", paint(Tone::kWarning,
                             "backend none: shares are not enforced (`switchyard backend "
                             "auto` changes that)"));
  } else if (means != "auto") {
    fmt::print("{}\n",
               paint(Tone::kWarning, fmt::format("backend {} alone was chosen (`switchyard backend "
                                                 "auto` uses what works)",
                                                 means)));
  }
}

std::string notes(const nlohmann::json& gpu) {
  std::string text;
  const auto add = [&text](const char* note) {
    text += (text.empty() ? "" : ", ") + std::string(note);
  };
  if (truth_of(gpu, "simulated")) add("simulated");
  if (!truth_of(gpu, "driver_tested") && !truth_of(gpu, "simulated")) add("driver not tested");
  if (truth_of(gpu, "mps")) add("MPS");
  if (truth_of(gpu, "mig")) add("MIG");
  return text;
}

// The slice of a job that yields to a high one, and why it is that long.
std::string yielding(const nlohmann::json& gpu) {
  const auto slice_us = number_of(gpu, "yield_slice_us");
  if (slice_us == 0) return "";
  const std::string why = text_of(gpu, "not_foreseen_reason", "");
  return fmt::format("; a job that yields gets slices of {} us: {}{}{}", slice_us,
                     text_of(gpu, "yield_reason"),
                     why.empty() ? "" : "; waits not foreseen: ", why);
}

void print_gpus(const nlohmann::json& gpus) {
  using enum Table::Align;
  Table table({{"GPU", kRight},
               {"NAME"},
               {"USED", kRight},
               {"RESERVED", kRight},
               {"UNMANAGED", kRight},
               {"CAPACITY", kRight},
               {"JOBS", kRight},
               {"CLIENTS", kRight},
               {"BACKEND"},
               {"NOTES"}});
  for (const auto& gpu : gpus) {
    const std::string means = text_of(gpu, "means");
    table.add({std::to_string(number_of(gpu, "index")),
               text_of(gpu, "name"),
               human_bytes(number_of(gpu, "memory_used_bytes")),
               human_bytes(number_of(gpu, "memory_reserved_bytes")),
               human_bytes(number_of(gpu, "memory_outside_bytes")),
               human_bytes(number_of(gpu, "memory_capacity_bytes")),
               std::to_string(number_of(gpu, "jobs")),
               std::to_string(number_of(gpu, "clients")),
               {means, means == "none" ? Tone::kWarning : Tone::kGood},
               notes(gpu)});
  }
  fmt::print("\n{}", table.render());
  for (const auto& gpu : gpus) {
    fmt::print("{}\n",
               paint(Tone::kFaint, fmt::format("{}: {}, driver {}; {}{}", number_of(gpu, "index"),
                                               text_of(gpu, "uuid"), text_of(gpu, "driver_version"),
                                               text_of(gpu, "means_reason"), yielding(gpu))));
  }
}

int status_without_monitor(bool json) {
  std::string problem;
  const nlohmann::json listing = list_gpus_unserved(problem);
  if (json) {
    print_json(listing);
    return kOk;
  }
  fmt::print("monitor: not running\n");
  say_unserved();
  if (!problem.empty()) {
    complain(fmt::format("no GPU: {}; see `switchyard doctor`", problem));
    return kOk;
  }
  using enum Table::Align;
  Table table({{"GPU", kRight}, {"NAME"}, {"USED", kRight}, {"TOTAL", kRight}, {"UUID"}});
  for (const auto& gpu : list_of(listing, "gpus")) {
    table.add({std::to_string(number_of(gpu, "index")), text_of(gpu, "name"),
               human_bytes(number_of(gpu, "memory_used_bytes")),
               human_bytes(number_of(gpu, "memory_total_bytes")), text_of(gpu, "uuid")});
  }
  fmt::print("\n{}", table.render());
  return kOk;
}

int status(bool json) {
  auto reply = MonitorClient::ask_any({{"op", "status"}});
  if (!reply && is_unserved(reply.error())) return status_without_monitor(json);
  if (!reply) return fail(reply.error());
  if (json) {
    print_json(*reply);
    return kOk;
  }
  const auto about = reply->find("monitor");
  print_monitor(about != reply->end() && about->is_object() ? *about : nlohmann::json::object());
  say_observed(*reply);
  const auto& gpus = list_of(*reply, "gpus");
  if (gpus.empty()) {
    complain("no GPU: the monitor sees none; see `switchyard doctor`");
  } else {
    print_gpus(gpus);
  }
  return kOk;
}

}  // namespace

void add_status(CommandLine& line) {
  line.add("status", "show the monitor and its GPUs", kExamples).acts_with_json(status);
}

}  // namespace switchyard::tools
