#include "tools/base/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "switchyard/printable.h"
#include "switchyard/settings.h"
#include "switchyard/status.h"
#include "tools/base/terminal.h"

namespace switchyard::tools {

std::string in_lines(const std::string& text) {
  constexpr std::size_t kColumns = 100;
  if (text.size() <= kColumns) return text;
  std::string out, line;
  const auto end_line = [&] {
    out += (out.empty() ? "" : "\n") + line;
    line = "  ";
  };
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool fits = line.size() + 1 + word.size() <= kColumns;
    if (!fits && line.size() > 2) end_line();
    line += (line.empty() || line == "  " ? "" : " ") + word;
    // What, why and what to do have a line each.
    if (word.back() == ';') end_line();
  }
  if (line.size() > 2) end_line();
  return out;
}

void complain(std::string_view text) {
  // One write, so that lines of several processes on one terminal stay whole. A log and a script
  // get one line.
  const std::string whole = fmt::format("switchyard: {}", printable(text));
  const std::string line = (::isatty(::fileno(stderr)) == 1 ? in_lines(whole) : whole) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

bool output_written() {
  static bool said = false;
  const bool failed = std::fflush(stdout) != 0;
  const int error = errno;
  if (!failed && std::ferror(stdout) == 0) return true;
  if (!std::exchange(said, true)) {
    complain(fmt::format("cannot write to stdout{}: the output is incomplete; write it elsewhere",
                         failed ? fmt::format(" ({})", std::strerror(error)) : ""));
  }
  return false;
}

bool colours(std::FILE* stream) {
  const char* off = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return ::isatty(::fileno(stream)) == 1 && (off == nullptr || off[0] == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::string paint(Tone tone, std::string_view text) {
  static const bool allowed = colours(stdout);
  if (!allowed || tone == Tone::kPlain) return std::string(text);
  const char* code = tone == Tone::kBold      ? "1"
                     : tone == Tone::kGood    ? "32"
                     : tone == Tone::kWarning ? "33"
                     : tone == Tone::kBad     ? "31"
                                              : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

const char* arrow() { return utf8_locale() ? "→" : "->"; }

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const bool whole = std::abs(value - std::round(value)) < 0.005;
  return whole ? fmt::format("{:.0f} {}", value, kUnits[unit])
               : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_seconds(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds < 0 ? 0 : seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string human_micros(std::uint64_t micros) {
  if (micros == 0) return "default";
  if (micros < 10000) return fmt::format("{} us", micros);
  return micros % 1000 == 0 ? fmt::format("{} ms", micros / 1000)
                            : fmt::format("{:.1f} ms", static_cast<double>(micros) / 1000);
}

namespace {

void print_listing(nlohmann::json listing, int indent) {
  listing.erase("ok");
  listing["schema_version"] = kSchemaVersion;
  const auto replace = nlohmann::json::error_handler_t::replace;
  fmt::print("{}\n", listing.dump(indent, ' ', false, replace));
}

}  // namespace

void print_json(nlohmann::json listing) { print_listing(std::move(listing), 2); }

void print_json_line(nlohmann::json listing) { print_listing(std::move(listing), -1); }

std::string text_of(const nlohmann::json& object, const char* key, std::string fallback) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>())
                                                     : std::move(fallback);
}

std::optional<double> real_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}

std::uint64_t number_of(const nlohmann::json& object, const char* key, std::uint64_t fallback) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return fallback;
  if (found->is_number_float()) {
    const double value = found->get<double>();
    return value >= 0 && value < 0x1p63 ? static_cast<std::uint64_t>(value) : fallback;
  }
  return found->is_number_unsigned() || found->get<std::int64_t>() >= 0
             ? found->get<std::uint64_t>()
             : fallback;
}

std::string percent_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return "-";
  return fmt::format("{:.3g}%", found->get<double>() * 100);
}

std::string rules_text(const nlohmann::json& reply) {
  const std::uint64_t slice_us = number_of(reply, "slice_us", kUsualSliceUs);
  std::string out =
      fmt::format("{}, minimum {}", text_of(reply, "policy"), percent_of(reply, "minimum_ratio"));
  if (slice_us != kUsualSliceUs) {
    out += fmt::format(", slice {:g}ms", static_cast<double>(slice_us) / 1e3);
  }
  if (text_of(reply, "waits") == "slices") out += ", waits slices";
  return out;
}

bool truth_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

const nlohmann::json& list_of(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

}  // namespace switchyard::tools
