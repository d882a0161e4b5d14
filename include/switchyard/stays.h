// Why memory of a swappable client can't leave the device: one line for each reason.
//
// Concept. name in the code, key in `ps --json`, words for people. The page counts bytes by reason
// (abi.h: Memory), so a reason keeps its place: a new one goes to the end. Charged memory that
// can't leave and has no line here is "other" in the listing. That of a client that is not
// swappable at all is "not_swappable".
//
// Imported memory is charged to its maker, so its reason alone names bytes beyond the charged.
//
// Threading: constants only.
#pragma once

#include <cstdint>

#define SWITCHYARD_STAYS(X)                                              \
  X(kSmall, "small_allocations", "allocations below 2 MiB")              \
  X(kManaged, "managed", "managed memory")                               \
  X(kArrays, "arrays", "arrays")                                         \
  X(kPools, "memory_pools", "stream-ordered memory pools")               \
  X(kGraphs, "graph_memory", "graph memory")                             \
  X(kIpcExported, "ipc_exported", "IPC-exported")                        \
  X(kIpcImported, "ipc_imported", "IPC-imported (charged to its maker)") \
  X(kPeerMapped, "peer_mapped", "peer-mapped")                           \
  X(kMulticast, "multicast", "bound to multicast")                       \
  X(kMultiplyMapped, "multiply_mapped", "mapped more than once")         \
  X(kNotMapped, "not_mapped", "not mapped for reading and writing")

namespace switchyard {

enum class Stays : std::uint8_t {
#define SWITCHYARD_STAYS_NAME(name, key, text) name,
  SWITCHYARD_STAYS(SWITCHYARD_STAYS_NAME)
#undef SWITCHYARD_STAYS_NAME
      kLeaves  // it can leave; or nothing is known of it
};

// With such memory a process keeps its contexts: the driver takes no checkpoint of managed memory,
// and the rest is another process's or GPU's, too.
inline constexpr Stays kKeepsContexts[] = {Stays::kManaged, Stays::kIpcExported,
                                           Stays::kIpcImported, Stays::kPeerMapped,
                                           Stays::kMulticast};

// How many reasons there are.
inline constexpr unsigned kStays = static_cast<unsigned>(Stays::kLeaves);

struct StaysText {
  const char* key;
  const char* text;
};
inline constexpr StaysText kStaysTexts[] = {
#define SWITCHYARD_STAYS_TEXT(name, key, text) {key, text},
    SWITCHYARD_STAYS(SWITCHYARD_STAYS_TEXT)
#undef SWITCHYARD_STAYS_TEXT
};

// What only the listing knows.
inline constexpr StaysText kStaysNotSwappable = {"not_swappable", "not swappable"};
inline constexpr StaysText kStaysOther = {"other", "other"};

}  // namespace switchyard
