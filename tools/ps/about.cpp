#include "tools/ps/about.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "switchyard/printable.h"
#include "tools/base/estimates.h"
#include "tools/base/output.h"

namespace switchyard::tools {

using nlohmann::json;
using Calendar = std::chrono::system_clock;

std::string utc_text(Calendar::time_point at) {
  const std::time_t seconds = Calendar::to_time_t(at);
  tm parts{};
  char text[32];
  ::gmtime_r(&seconds, &parts);
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts));
}

json command_of(std::uint64_t pid, std::uint64_t uid) {
  constexpr std::size_t kMost = 256;
  if (::geteuid() != 0 && ::geteuid() != uid) return nullptr;
  // In another namespace the number may be somebody else's.
  const std::string folder = fmt::format("/proc/{}", pid);
  struct stat owner {};
  if (::stat(folder.c_str(), &owner) != 0 || owner.st_uid != uid) return nullptr;
  std::ifstream file(folder + "/cmdline", std::ios::binary);
  std::string text(kMost, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text.empty() ? json(nullptr) : json(printable(text));
}

namespace {

void add_errors(json& gpus) {
  for (json& gpu : gpus) {
    const auto share = real_of(gpu, "share_got_ratio");
    const bool estimated = truth_of(gpu, "share_got_estimated");
    gpu["share_got_error_ratio"] =
        share ? json(estimated ? error_of_estimate(*share) : 0.0) : json(nullptr);
  }
}

}  // namespace

void add_about(json& listing, Calendar::time_point now) {
  listing["time"] = utc_text(now);
  if (!listing.contains("monitor")) listing["monitor"] = nullptr;
  const auto jobs = listing.find("jobs");
  if (jobs == listing.end() || !jobs->is_array()) return;
  for (json& job : *jobs) {
    if (!job.is_object()) continue;
    const std::chrono::duration<double> since(real_of(job, "since_seconds").value_or(0));
    job["started"] = utc_text(now - std::chrono::duration_cast<Calendar::duration>(since));
    json command = nullptr;
    for (const json& process : list_of(job, "processes")) {
      if (command.is_null()) command = command_of(number_of(process, "pid"), number_of(job, "uid"));
    }
    job["command"] = std::move(command);
    if (!list_of(job, "gpus").empty()) add_errors(job["gpus"]);
  }
}

}  // namespace switchyard::tools
