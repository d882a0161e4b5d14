// What a person reads: values in handy units, and colours where a terminal shows them.
//
// Concept. Data goes to stdout, messages to stderr. Colours only where that stream is a terminal
// and NO_COLOR isn't set.
//
// Threading: call from the only thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace switchyard::tools {

// A message as a terminal shows it. Where it has more than 100 columns, each part up to a ';' has a
// line, and none is longer.
std::string in_lines(const std::string& text);

// One message on stderr: "switchyard: TEXT", without control characters; in one line, or on a
// terminal in lines of 100 columns.
void complain(std::string_view text);

// Flushes stdout. False: some of what was printed did not arrive. The first time it says so on
// stderr.
bool output_written();

// The line on stderr for an empty table of jobs.
inline constexpr char kNoJobs[] = "no jobs; `switchyard run -- COMMAND` starts one";

// True when `stream` may carry colours.
bool colours(std::FILE* stream);

enum class Tone { kPlain, kBold, kGood, kWarning, kBad, kFaint };

// `text` in the colour of `tone` when stdout may carry colours, else unchanged.
std::string paint(Tone tone, std::string_view text);

// An arrow, as the locale can show it.
const char* arrow();

std::string human_bytes(std::uint64_t bytes);    // "1.50 GiB"
std::string human_seconds(double seconds);       // "2 h 05 min"
std::string human_micros(std::uint64_t micros);  // "20 us", "10 ms"; 0 is "default"

// A listing as JSON on stdout: without "ok", with schema_version first in meaning if not in order.
void print_json(nlohmann::json listing);

// The same in one line, where listings follow each other.
void print_json_line(nlohmann::json listing);

// Readers for what the monitor sent: the member, or `fallback` when it is missing, null or of
// another type. A monitor of another version must not make a listing fail. Texts come without
// control characters.
std::string text_of(const nlohmann::json& object, const char* key, std::string fallback = "-");
std::uint64_t number_of(const nlohmann::json& object, const char* key, std::uint64_t fallback = 0);
std::optional<double> real_of(const nlohmann::json& object, const char* key);
// A ratio as "30%" or "2.5%"; "-" when there is none.
std::string percent_of(const nlohmann::json& object, const char* key);
// The policy of a reply, and those of its settings that are not as usual, in one line.
std::string rules_text(const nlohmann::json& reply);
bool truth_of(const nlohmann::json& object, const char* key);
const nlohmann::json& list_of(const nlohmann::json& object, const char* key);

}  // namespace switchyard::tools
