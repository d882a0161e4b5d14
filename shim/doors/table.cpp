#include "shim/table.h"

#include <cstdint>
#include <cstring>
#include <iterator>

#include "shim/entry.h"
#include "shim/inside.h"
#include "shim/rules/rules.h"
#include "shim/trampoline.h"

// One line of calls.def becomes a rule bound to its original, a slot that holds our entry, and an
// exported symbol. The symbol jumps through the slot (trampoline.h).
namespace switchyard::shim {
namespace {

#define CUDA_CALL(name, rule)                            \
  struct Rule_##name {                                   \
    static auto* original() { return g_driver.name; }    \
    template <typename Original, typename... Args>       \
    static auto apply(Original original, Args... args) { \
      const Inside inside;                               \
      return rules::rule(original, args...);             \
    }                                                    \
  };
#include "filtered/calls.def"
#include "filtered/plain.def"
#undef CUDA_CALL

}  // namespace
}  // namespace switchyard::shim

#define CUDA_CALL(name, rule) \
  SWITCHYARD_EXPORT(          \
      name, (&switchyard::shim::Entry<decltype(::name), switchyard::shim::Rule_##name>::call))
#include "filtered/calls.def"
#include "filtered/plain.def"
#undef CUDA_CALL

namespace switchyard::shim {
namespace {

using AnyFunction = void (*)();

struct Line {
  const char* name;
  AnyFunction entry;
  const void* original;  // where in g_driver the driver's own address stands
};

// Constant data with relocations: no constructor runs for it.
const Line kLines[] = {
#define CUDA_CALL(name, rule)                                                         \
  {#name, reinterpret_cast<AnyFunction>(&Entry<decltype(::name), Rule_##name>::call), \
   &g_driver.name},
#include "filtered/calls.def"
#include "filtered/plain.def"
#undef CUDA_CALL
};

constexpr std::size_t kBuckets = 2048;
static_assert(std::size(kLines) * 2 < kBuckets, "keep the hash tables at most half full");

// Bucket → line + 1. Filled by index_table() before anybody may look.
struct State {
  std::uint16_t by_name[kBuckets] = {};
  std::uint16_t by_original[kBuckets] = {};
};
constinit State g_state;

std::size_t hash_name(const char* name) {
  std::uint32_t hash = 2166136261u;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 16777619u;
  return hash % kBuckets;
}

std::size_t hash_address(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) * 0x9E3779B97F4A7C15u >> 40) % kBuckets;
}

void* original_of(const Line& line) { return *static_cast<void* const*>(line.original); }

void insert(std::uint16_t* table, std::size_t bucket, std::size_t line) {
  while (table[bucket] != 0) bucket = (bucket + 1) % kBuckets;
  table[bucket] = static_cast<std::uint16_t>(line + 1);
}

}  // namespace

void index_table() {
  g_state = {};  // a forked child may find half of the parent's
  for (std::size_t i = 0; i < std::size(kLines); ++i) {
    void* original = original_of(kLines[i]);
    if (original == nullptr) continue;  // not in this driver: neither name nor address is ours
    insert(g_state.by_name, hash_name(kLines[i].name), i);
    // Where two names are one function in the driver, the first row answers for both.
    if (entry_by_original(original) == nullptr)
      insert(g_state.by_original, hash_address(original), i);
  }
}

void* entry_by_name(const char* name) {
  for (std::size_t bucket = hash_name(name); g_state.by_name[bucket] != 0;
       bucket = (bucket + 1) % kBuckets) {
    const Line& line = kLines[g_state.by_name[bucket] - 1];
    if (std::strcmp(line.name, name) == 0) return reinterpret_cast<void*>(line.entry);
  }
  return nullptr;
}

bool is_ours(const char* name) {
  for (const Line& line : kLines) {
    if (std::strcmp(line.name, name) == 0) return true;
  }
  return false;
}

void* entry_by_original(const void* original) {
  for (std::size_t bucket = hash_address(original); g_state.by_original[bucket] != 0;
       bucket = (bucket + 1) % kBuckets) {
    const Line& line = kLines[g_state.by_original[bucket] - 1];
    if (original_of(line) == original) return reinterpret_cast<void*>(line.entry);
  }
  return nullptr;
}

Row table_row(std::size_t index) {
  if (index >= std::size(kLines)) return {nullptr, nullptr, nullptr};
  const Line& line = kLines[index];
  return {line.name, reinterpret_cast<void*>(line.entry), original_of(line)};
}

}  // namespace switchyard::shim
