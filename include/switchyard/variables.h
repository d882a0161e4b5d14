// The environment variables that Switchyard knows, so that a misspelt one can be named.
//
// Concept. A misspelt SWITCHYARD_MEMROY would be a quota that silently is none. Every variable that
// some program of ours reads stands here; list_unknown_variables() names the others. The library
// and the tools read a flag by flag_variable(), so that both understand a value alike.
//
// Threading: constants, a pure function over the environment that it is given, and flag_variable(),
// which reads the environment of the process.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "switchyard/card.h"

namespace switchyard {

inline constexpr char kVariablePrefix[] = "SWITCHYARD_";

// Without the prefix.
inline constexpr const char* kVariables[] = {
#define SWITCHYARD_KNOB_VARIABLE(field, env, capacity, fallback, ...) env,
    SWITCHYARD_KNOBS(SWITCHYARD_KNOB_VARIABLE)
#undef SWITCHYARD_KNOB_VARIABLE
        "SOCKET",    // where the monitor listens (paths.h)
    "REQUIRE",       // 1: no CUDA without a monitor
    "DISABLE",       // 1: the library does nothing
    "LIBRARY",       // where libswitchyard.so is, for `switchyard run`
    "LOG",           // the library's log
    "BACKEND",       // what enforces shares, for a monitor that starts
    "MEANS",         // the same, by its earlier name
    "SWAP_DIGEST",   // 0: everything is copied (shim/swap)
    "NEWER_DRIVER",  // 1: swappable under a driver with calls that the library does not know
    "REQUIRE_GPU",   // tests and benchmarks
    "BENCH_OUT",
};

// Whether `name`, without the prefix, is one of them. Tests' own begin with TEST_.
inline bool known_variable(const char* name, std::size_t length) {
  if (std::strncmp(name, "TEST_", 5) == 0) return true;
  for (const char* each : kVariables) {
    if (std::strlen(each) == length && std::strncmp(each, name, length) == 0) return true;
  }
  return false;
}

// The names in `environment` (ends with null) that have our prefix and are none of ours: the first
// eight, with commas between them, then "...". Text that does not fit is cut. False: there are
// none.
template <std::size_t kSize>
bool list_unknown_variables(const char* const* environment, char (&out)[kSize]) {
  constexpr std::size_t kPrefix = sizeof(kVariablePrefix) - 1;
  constexpr int kMost = 8;
  int count = 0;
  std::size_t used = 0;
  for (; environment != nullptr && *environment != nullptr && count <= kMost; ++environment) {
    const std::size_t length = std::strcspn(*environment, "=");
    if (std::strncmp(*environment, kVariablePrefix, kPrefix) != 0) continue;
    if (known_variable(*environment + kPrefix, length - kPrefix)) continue;
    const char* name = count < kMost ? *environment : "...";
    const int written =
        std::snprintf(out + used, kSize - used, "%s%.*s", count == 0 ? "" : ", ",
                      static_cast<int>(count < kMost ? length : std::strlen(name)), name);
    used += static_cast<std::size_t>(written);
    if (used >= kSize) used = kSize - 1;
    ++count;
  }
  return count != 0;
}

// Whether the variable `name` is on: anything but "0". An empty or unset one is `unset`.
inline bool flag_variable(const char* name, bool unset = false) {
  const char* text = std::getenv(name);
  if (text == nullptr || text[0] == '\0') return unset;
  return std::strcmp(text, "0") != 0;
}

}  // namespace switchyard
