// Errors as values: an exit code and one line that says what was tried, on what, and what to do.
//
// Threading: plain values.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "switchyard/status.h"

namespace switchyard::tools {

struct Error {
  int code = kFailure;  // an ExitCode
  std::string text;
};

// The text for `what` is none of the accepted forms.
inline Error bad_value(const std::string& what, const std::string& text, const std::string& forms) {
  return {kUsage, what + " cannot be '" + text + "': expected " + forms};
}

// A value, or why there is none.
template <typename Value>
class Result {
 public:
  Result(Value value) : content_(std::move(value)) {}
  Result(Error error) : content_(std::move(error)) {}

  explicit operator bool() const { return content_.index() == 0; }
  Value& operator*() { return std::get<0>(content_); }
  const Value& operator*() const { return std::get<0>(content_); }
  Value* operator->() { return &std::get<0>(content_); }
  const Value* operator->() const { return &std::get<0>(content_); }
  const Error& error() const { return std::get<1>(content_); }

 private:
  std::variant<Value, Error> content_;
};

}  // namespace switchyard::tools
