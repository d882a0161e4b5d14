// What a listing says, on any machine and with any compiler.
//
// Threading: any thread.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>

namespace switchyard::monitor::test {

using nlohmann::json;

// A listing without what differs from machine to machine, and with numbers of five digits: the last
// ones are the compiler's.
inline json plain(const json& from) {
  if (from.is_number_float()) {
    char out[32];
    std::snprintf(out, sizeof out, "%.5g", from.get<double>());
    return out;
  }
  if (!from.is_structured()) return from;
  json out = from.is_array() ? json::array() : json::object();
  const bool of_monitor = from.contains("socket");
  for (const auto& [key, value] : from.items()) {
    if (from.is_array()) {
      out.push_back(plain(value));
    } else if (!(of_monitor && (key == "pid" || key == "uid")) && key != "user" &&
               key != "version" && key != "layout") {
      out[key] = plain(value);
    }
  }
  return out;
}

}  // namespace switchyard::monitor::test
