#include "shim/client/settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>

#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "switchyard/variables.h"

namespace switchyard::shim {
namespace {

// 0: not read yet; 1: no; 2: yes. Racing readers read the same environment.
bool flag(std::atomic<int>& cached, const char* name, bool unset = false) {
  int value = cached.load(std::memory_order_relaxed);
  if (value == 0) {
    value = flag_variable(name, unset) ? 2 : 1;
    cached.store(value, std::memory_order_relaxed);
  }
  return value == 2;
}

struct State {
  JobCard card{};  // as it was read last
  SocketWords socket{};
  TooLong too_long{};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// False: it does not fit.
template <size_t kCapacity>
bool read_knob(char (&field)[kCapacity], const char* name) {
  const char* text = ::getenv(name);
  const int length = ::snprintf(field, kCapacity, "%s", text != nullptr ? text : "");
  return length >= 0 && static_cast<size_t>(length) < kCapacity;
}

}  // namespace

bool disabled() {
  static std::atomic<int> cached{0};
  return flag(cached, "SWITCHYARD_DISABLE");
}

bool required() {
  static std::atomic<int> cached{0};
  return flag(cached, "SWITCHYARD_REQUIRE");
}

bool swap_digest() {
  static std::atomic<int> cached{0};
  return flag(cached, "SWITCHYARD_SWAP_DIGEST", true);
}

bool newer_driver_allowed() {
  static std::atomic<int> cached{0};
  return flag(cached, "SWITCHYARD_NEWER_DRIVER");
}

TooLong read_card(JobCard& card) {
  TooLong found;
  card = {};
#define SWITCHYARD_READ(field, env, capacity, ...) \
  if (!read_knob(card.field, "SWITCHYARD_" env)) { \
    found = {"SWITCHYARD_" env, (capacity)-1};     \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_READ)
#undef SWITCHYARD_READ
  const SocketWords socket = socket_words();
  const Locked locked(g_state.lock);
  g_state.card = card;
  g_state.socket = socket;
  g_state.too_long = found;
  return found;
}

TooLong read_before(JobCard& card) {
  const Locked locked(g_state.lock);
  card = g_state.card;
  return g_state.too_long;
}

SocketWords socket_before() {
  const Locked locked(g_state.lock);
  return g_state.socket;
}

bool list_promises(char (&out)[256]) {
  out[0] = '\0';
  JobCard card;
  read_before(card);
  const auto add = [&out](const char* name, const char* text, const char* fallback) {
    if (text[0] == '\0' || ::strcasecmp(text, "none") == 0) return;
    if (::strcmp(text, fallback) == 0) return;
    const size_t used = ::strlen(out);
    ::snprintf(out + used, sizeof(out) - used, "%s%s", used == 0 ? "" : ", ", name);
  };
#define SWITCHYARD_ADD(field, env, capacity, fallback, ...)      \
  if (::strcmp(env, "JOB") != 0 && ::strcmp(env, "NAME") != 0) { \
    add("SWITCHYARD_" env, card.field, fallback);                \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_ADD)
#undef SWITCHYARD_ADD
  return out[0] != '\0';
}

void say_unknown_variables() {
  static Once said;
  char names[512];
  if (!list_unknown_variables(environ, names)) return;
  log_once(said, Level::kWarn,
           "unknown to Switchyard, and ignored: %s; see `switchyard run --help`", names);
}

void say_wrong_log() {
  static Once said;
  if (const char* mistyped = mistyped_level()) {
    log_once(said, Level::kWarn,
             "SWITCHYARD_LOG cannot be '%s': expected off, error, warn, info or debug, and :FILE "
             "behind it if wanted",
             mistyped);
  }
  // Also to who asked for errors alone: they go elsewhere now.
  if (const Unopened log = unopened_log(); log.path != nullptr) {
    log_once(said, Level::kError,
             "the log %s cannot be opened (%s), so warnings go to stderr: change SWITCHYARD_LOG",
             log.path, ::strerror(log.error));
  }
}

SWITCHYARD_RENEW(kConnection, g_state);

}  // namespace switchyard::shim
