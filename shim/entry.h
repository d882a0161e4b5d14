// How a row of calls.def becomes a function: find the original, hand it to the rule.
//
// A rule is a plain function (or template) in namespace switchyard::shim::rules whose first
// argument is the original call, followed by the call's own arguments. So a rule that does not fit
// its call is a compile error, and a test can pass it any original it likes.
//
// Threading: stateless.
#pragma once

#include "shim/driver.h"

namespace switchyard::shim {

template <typename Signature, typename Rule>
struct Entry;

template <typename Result, typename... Args, typename Rule>
struct Entry<Result(Args...), Rule> {
  static Result CUDAAPI call(Args... args) {
    // A first call through a direct link finds the table empty, or another thread filling it.
    if (!resolved() && !resolve(true)) [[unlikely]]
      return CUDA_ERROR_NO_DEVICE;
    auto* original = Rule::original();
    if (original == nullptr) [[unlikely]]
      return kNoSuchCall;
    return Rule::apply(original, args...);
  }
};

}  // namespace switchyard::shim
