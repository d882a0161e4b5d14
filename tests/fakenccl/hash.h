// How ids are made of unique ids, and of what tells children apart.
//
// Threading: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fakenccl {

inline std::uint64_t hash(const void* bytes, std::size_t count) {
  std::uint64_t out = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < count; ++i) {
    out = (out ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
  }
  return out;
}

}  // namespace fakenccl
