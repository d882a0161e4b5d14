#include "tools/run/refuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "switchyard/known_calls.h"
#include "switchyard/variables.h"
#include "tools/base/driver_report.h"
#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

// Shares need a means of enforcement; memory quotas and swapping need none.
bool needs_means(const Promise& promise) {
  for (const char* field : {"priority", "share", "limit", "deadline", "guard"}) {
    if (promise.field == field) return true;
  }
  return false;
}

bool needs_swapping(const Promise& promise) {
  for (const char* field : {"swappable", "idle_release", "oversubscribe"}) {
    if (promise.field == field) return true;
  }
  return false;
}

std::vector<Promise> those_that(bool (*need)(const Promise&), const std::vector<Promise>& all) {
  std::vector<Promise> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), need);
  return out;
}

}  // namespace

std::optional<Error> refuse_swapping(const RunOptions& options) {
  const auto asked = those_that(needs_swapping, options.promises);
  if (asked.empty() || flag_variable("SWITCHYARD_NEWER_DRIVER")) return std::nullopt;
  const int driver = driver_version();
  if (driver <= kKnownVersion) return std::nullopt;
  const std::string why = fmt::format(
      "the driver is of {}, and the library knows the calls of {}: with {}, a newer "
      "call could use memory that is away",
      cuda_version_text(driver), cuda_version_text(kKnownVersion), origins_text(asked));
  if (options.best_effort) {
    complain(why + "; memory stays on the device");
    return std::nullopt;
  }
  return Error{kRunRefused, fmt::format("{}; not started: {}, or leave it out", why,
                                        newer_driver_remedy(kKnownVersion))};
}

std::optional<Doubt> doubt(MonitorClient& monitor) {
  const auto status = monitor.ask({{"op", "status"}});
  if (!status) return std::nullopt;
  const auto& gpus = list_of(*status, "gpus");
  if (gpus.empty()) return Doubt{why_no_gpu(), true};
  for (const auto& gpu : gpus) {
    if (text_of(gpu, "means") != "none") return std::nullopt;
  }
  const auto about = status->find("monitor");
  const bool chosen = about != status->end() && text_of(*about, "means") == "none";
  return Doubt{fmt::format("shares and priorities cannot be enforced on this machine ({}); memory "
                           "quotas hold",
                           text_of(gpus.front(), "means_reason", "no means")),
               false, chosen};
}

std::optional<Error> refuse_shares(const RunOptions& options, const Doubt& against) {
  const auto broken = those_that(needs_means, options.promises);
  if (broken.empty() || options.best_effort || against.chosen) return std::nullopt;
  return Error{kRunRefused,
               fmt::format("{}; not started, because {} cannot be enforced: leave it out, or "
                           "add --best-effort",
                           against.text, origins_text(broken))};
}

std::optional<Error> refuse_unmanaged(const RunOptions& options, const std::string& why) {
  if (options.require) {
    return Error{kRunRefused,
                 fmt::format("{}; not started, because {}", why, options.require_origin)};
  }
  if (options.promises.empty() || options.best_effort) return std::nullopt;
  return Error{kRunRefused, fmt::format("{}; not started, because {} cannot be enforced: add "
                                        "--best-effort to start it unmanaged",
                                        why, origins_text(options.promises))};
}

}  // namespace switchyard::tools
