// Kinds of collective operations: one line for each.
//
// Concept. Name in the code, key in JSON. The page names the kind of a communicator's last
// operation (abi.h: Communicator), so a kind keeps its number: a new one goes to the end. 0: none.
//
// Threading: constants only.
#pragma once

#include <cstdint>

#define SWITCHYARD_COLLECTIVES(X)     \
  X(kAllReduce, "all_reduce")         \
  X(kBroadcast, "broadcast")          \
  X(kReduce, "reduce")                \
  X(kAllGather, "all_gather")         \
  X(kReduceScatter, "reduce_scatter") \
  X(kAllToAll, "all_to_all")          \
  X(kGather, "gather")                \
  X(kScatter, "scatter")              \
  X(kSend, "send")                    \
  X(kReceive, "receive")

namespace switchyard {

enum class Collective : std::uint32_t {
  kNone,
#define SWITCHYARD_COLLECTIVES_NAME(name, key) name,
  SWITCHYARD_COLLECTIVES(SWITCHYARD_COLLECTIVES_NAME)
#undef SWITCHYARD_COLLECTIVES_NAME
      kEnd
};

// The key of a kind; null: it is none that we know.
constexpr const char* collective_key(std::uint32_t kind) {
  constexpr const char* kKeys[] = {nullptr,
#define SWITCHYARD_COLLECTIVES_KEY(name, key) key,
                                   SWITCHYARD_COLLECTIVES(SWITCHYARD_COLLECTIVES_KEY)
#undef SWITCHYARD_COLLECTIVES_KEY
  };
  return kind < static_cast<std::uint32_t>(Collective::kEnd) ? kKeys[kind] : nullptr;
}

// One rank sends and one receives: the others have no part in it.
constexpr bool is_point_to_point(Collective kind) {
  return kind == Collective::kSend || kind == Collective::kReceive;
}

// The id of a communicator's twin (--urgent-collectives), to which its reduce-scatters go; and
// back.
inline constexpr std::uint64_t kTwinIsBeyond = 0x7477696E7477696Eu;
constexpr std::uint64_t twin_id(std::uint64_t id) { return id + kTwinIsBeyond; }
constexpr std::uint64_t original_id(std::uint64_t twin) { return twin - kTwinIsBeyond; }

}  // namespace switchyard
