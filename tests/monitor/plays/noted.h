// The columns that a play notes: the words of pages (orders), answers to people (listing), events,
// and what is kept of all of it (bills).
//
// Threading: one thread, the test's.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::monitor::test {

using nlohmann::json;

enum Column : unsigned { kOrders, kListing, kEvents, kBills, kColumns };
inline constexpr const char* kNames[kColumns] = {"orders", "listing", "events", "bills"};

// Where the text shall be written; null: nowhere.
inline const char* folder() { return std::getenv("SWITCHYARD_PLAYS"); }

// All that was noted in one column: a digest, and the text where somebody wants that.
class Noted {
 public:
  void note(const std::string& line) {
    for (const char each : line)
      digest_ = (digest_ ^ static_cast<unsigned char>(each)) * 0x100000001b3;
    digest_ = (digest_ ^ '\n') * 0x100000001b3;
    if (folder() != nullptr) text_ += line + "\n";
  }
  std::string digest() const {
    char out[9];
    std::snprintf(out, sizeof out, "%08x", static_cast<unsigned>(digest_ ^ (digest_ >> 32)));
    return out;
  }
  const std::string& text() const { return text_; }

 private:
  std::uint64_t digest_ = 0xcbf29ce484222325;
  std::string text_;
};

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
