#include "shim/client/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace switchyard::shim {
namespace {

// 0: not read yet; 1: no; 2: yes. Racing readers read the same environment.
bool flag(std::atomic<int>& cached, const char* name, bool unset = false) {
  int value = cached.load(std::memory_order_relaxed);
  if (value == 0) {
    const char* text = ::getenv(name);
    const bool is_set = text != nullptr && text[0] != '\0';
    value = (is_set ? ::strcmp(text, "0") != 0 : unset) ? 2 : 1;
    cached.store(value, std::memory_order_relaxed);
  }
  return value == 2;
}

template <size_t kCapacity>
void read_knob(char (&field)[kCapacity], const char* name, const char* fallback) {
  const char* text = ::getenv(name);
  ::snprintf(field, kCapacity, "%s", text != nullptr && text[0] != '\0' ? text : fallback);
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

void read_card(JobCard& card) {
#define SWITCHYARD_READ(field, env, capacity, fallback) \
  read_knob(card.field, "SWITCHYARD_" env, fallback);
  SWITCHYARD_KNOBS(SWITCHYARD_READ)
#undef SWITCHYARD_READ
}

}  // namespace switchyard::shim
