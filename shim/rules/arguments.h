// What the arguments of an intercepted call say by their place: its stream, and how much it moves.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "shim/driver.h"

namespace switchyard::shim::rules {

// The stream of a call that has one as its last argument; else the legacy default stream.
template <typename... Args>
constexpr bool kHasStream =
    std::is_same_v<std::tuple_element_t<sizeof...(Args) - 1, std::tuple<Args...>>, CUstream>;

template <typename... Args>
CUstream last_stream(Args... args) {
  if constexpr (kHasStream<Args...>) return std::get<sizeof...(Args) - 1>(std::tie(args...));
  return CU_STREAM_LEGACY;
}

// The last argument but the stream, a number of bytes.
template <typename... Args>
std::uint64_t last_bytes(Args... args) {
  constexpr std::size_t kAt = sizeof...(Args) - (kHasStream<Args...> ? 2 : 1);
  return std::get<kAt>(std::tie(args...));
}

}  // namespace switchyard::shim::rules
