// What the operations of commands.h share: reading a request and wording a reply.
//
// Threading: pure functions.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "switchyard/status.h"

namespace switchyard::monitor {

inline nlohmann::json refusal(int code, const std::string& error) {
  return {{"schema_version", kSchemaVersion}, {"ok", false}, {"code", code}, {"error", error}};
}

inline nlohmann::json nonsense(const char* what, const std::string& value, const char* forms) {
  return refusal(kUsage, fmt::format("{} cannot be '{}': expected {}", what, value, forms));
}

inline nlohmann::json success() { return {{"schema_version", kSchemaVersion}, {"ok", true}}; }

inline nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
}

// Names of processes need not be UTF-8.
inline std::string dump(const nlohmann::json& out) {
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A value as text: people's tools may send 4 as well as "4". A value with parts is no value of
// ours: its text is none that anything takes, and short.
inline std::optional<std::string> text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_structured()) return found->is_array() ? "[...]" : "{...}";
  return found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace switchyard::monitor
