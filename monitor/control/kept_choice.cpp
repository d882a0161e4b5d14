#include "monitor/control/kept_choice.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "monitor/control/reply.h"
#include "monitor/control/settings_commands.h"
#include "switchyard/settings.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 4096;

struct Choice {
  policy::Rules rules;
  Means means = Means::kAuto;
};

std::string path_of(const Monitor& monitor) { return monitor.settings().socket + ".chosen"; }

json as_json(const policy::Rules& rules, Means means) {
  json out = {{"policy", policy_name(rules.kind)},
              {"minimum_ratio", rules.minimum},
              {"waits", waits_name(rules)},
              {"backend", means_name(means)}};
  // Older monitors wrote no slice. So the usual one is left out, and their choices stay equal.
  if (rules.slice_us != kUsualSliceUs) out["slice_us"] = rules.slice_us;
  return out;
}

json options_of(const Monitor& monitor) {
  return as_json(monitor.settings().rules, monitor.settings().means);
}

std::optional<Choice> read_choice(const json& kept, const policy::Rules& base) {
  Choice out{base, Means::kAuto};
  const auto kind = position_of(text_of(kept, "policy").value_or(""), kPolicyNames);
  const auto waits = position_of(text_of(kept, "waits").value_or(""), kWaitsNames);
  const auto means = position_of(text_of(kept, "backend").value_or(""), kMeansNames);
  const auto minimum = kept.find("minimum_ratio");
  if (!kind || !waits || !means || minimum == kept.end() || !minimum->is_number()) return {};
  out.rules.kind = static_cast<policy::Kind>(*kind);
  out.rules.foresee = *waits == 1;
  out.rules.minimum = minimum->get<double>();
  out.means = static_cast<Means>(*means);
  const json slice = kept.value("slice_us", json(kUsualSliceUs));
  if (!slice.is_number_unsigned()) return {};
  out.rules.slice_us = slice.get<std::uint32_t>();
  // What `--minimum` and `--slice` take.
  if (!(out.rules.minimum >= 0 && out.rules.minimum <= 0.5)) return {};
  if (!parse_slice(slice_text(out.rules))) return {};
  return out;
}

// The text of a file that is ours alone. Empty: `why` says what is wrong, or there is none.
std::string contents(const std::string& path, std::string& why) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    if (errno != ENOENT) why = std::strerror(errno);
    return {};
  }
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    why = "it is not a file of this monitor's user alone";
    return {};
  }
  char text[kMostBytes + 1];
  const ssize_t got = ::read(fd.get(), text, sizeof(text));
  if (got <= 0 || static_cast<std::size_t>(got) > kMostBytes) {
    why = "it is empty or too long";
    return {};
  }
  return {text, static_cast<std::size_t>(got)};
}

bool write_whole(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
         ::rename(fresh.c_str(), path.c_str()) == 0;
}

}  // namespace

void keep_choice(Monitor& monitor) {
  if (monitor.settings().socket.empty()) return;
  json kept = as_json(monitor.scheduler().rules(), monitor.scheduler().chosen());
  kept["options"] = options_of(monitor);
  if (write_whole(path_of(monitor), dump(kept) + "\n")) return;
  spdlog::warn("writing {}: {}: the next monitor will not have this choice", path_of(monitor),
               std::strerror(errno));
}

void restore_choice(Monitor& monitor) {
  const std::string path = path_of(monitor);
  std::string why;
  const std::string text = contents(path, why);
  if (text.empty() && why.empty()) return;
  const json kept = json::parse(text, nullptr, false);
  const auto choice = kept.is_object() ? read_choice(kept, monitor.settings().rules) : std::nullopt;
  if (!choice) {
    spdlog::warn("{} is ignored: {}", path, why.empty() ? "it has no valid choice" : why);
    return;
  }
  if (kept.value("options", json()) != options_of(monitor)) {
    spdlog::info("{} is ignored: this monitor was started with other options", path);
    return;
  }
  monitor.scheduler().choose(choice->rules);
  monitor.scheduler().choose(choice->means);
  spdlog::info("as chosen before: policy {}, minimum {}, slice {}, waits {}, backend {}",
               policy_name(choice->rules.kind), choice->rules.minimum, slice_text(choice->rules),
               waits_name(choice->rules), means_name(choice->means));
}

}  // namespace switchyard::monitor
