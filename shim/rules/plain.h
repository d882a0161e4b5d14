// The rule of a call that the library only wants to know of (plain.def).
//
// Threading: any thread.
#pragma once

namespace switchyard::shim::rules {

template <typename Original, typename... Args>
auto plain(Original original, Args... args) {
  return original(args...);
}

}  // namespace switchyard::shim::rules
