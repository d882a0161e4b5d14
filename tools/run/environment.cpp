#include "tools/run/environment.h"

#include <cstdlib>
#include <string_view>

#include "tools/base/knobs.h"
#include "tools/run/island/island.h"

namespace switchyard::tools {
namespace {

constexpr std::string_view kLibraryName = "libswitchyard.so";

bool is_ours(std::string_view entry) {
  const auto slash = entry.rfind('/');
  return (slash == std::string_view::npos ? entry : entry.substr(slash + 1)) == kLibraryName;
}

void set_or_unset(const char* name, const std::string& value) {
  if (value.empty()) {
    ::unsetenv(name);
  } else {
    ::setenv(name, value.c_str(), 1);
  }
}

std::string current_preload() {
  const char* value = std::getenv("LD_PRELOAD");
  return value != nullptr ? value : "";
}

}  // namespace

std::string preload_without(const std::string& value) {
  std::string kept;
  // ld.so takes blanks and colons alike.
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = std::min(value.find_first_of(": ", at), value.size());
    const std::string_view entry(value.data() + at, end - at);
    if (!entry.empty() && !is_ours(entry)) {
      if (!kept.empty()) kept += ':';
      kept += entry;
    }
    at = end + 1;
  }
  return kept;
}

std::string preload_with(const std::string& value, const std::string& library) {
  const std::string others = preload_without(value);
  return others.empty() ? library : others + ":" + library;
}

void enter_job(const std::string& job, const Card& card, const std::string& socket,
               const std::string& library, bool require) {
  for (const Knob& knob : knobs()) {
    const auto asked = card.find(knob.field);
    set_or_unset(knob.environment, asked != card.end() ? asked->second : std::string());
  }
  ::setenv("SWITCHYARD_JOB", job.c_str(), 1);
  ::setenv("SWITCHYARD_SOCKET", socket.c_str(), 1);
  set_or_unset("SWITCHYARD_REQUIRE", require ? "1" : "");
  ::setenv("LD_PRELOAD", preload_with(current_preload(), library).c_str(), 1);
}

void stay_in_job(const std::string& library, bool require) {
  set_or_unset("SWITCHYARD_REQUIRE", require ? "1" : "");
  ::setenv("LD_PRELOAD", preload_with(current_preload(), library).c_str(), 1);
}

void leave_job() {
  island::leave();
  for (const Knob& knob : knobs()) ::unsetenv(knob.environment);
  ::unsetenv("SWITCHYARD_REQUIRE");
  set_or_unset("LD_PRELOAD", preload_without(current_preload()));
}

}  // namespace switchyard::tools
