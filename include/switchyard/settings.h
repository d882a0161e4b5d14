// What a person may write: for each knob of a job (card.h), and for what the owner of a monitor
// chooses. The parsers, and the accepted forms as text, so that every error can show the value and
// the forms. For monitor and tools; the shim only copies the text.
//
// A setting of a job names its kind of value in card.h: `kind` at the end of this file.
//
// Threading: pure functions.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace switchyard {

enum class Priority : std::uint8_t { kLow = 0, kNormal = 1, kHigh = 2 };

inline constexpr char kPriorityForms[] = "high, normal or low";
inline constexpr char kShareForms[] = "a weight from 0.01 to 1000, such as 1, 4 or 0.5, or auto";
inline constexpr char kWeightForms[] = "a weight from 0.01 to 1000, such as 1, 4 or 0.5";
inline constexpr char kLimitForms[] =
    "a part of the GPU's time from 1% to 100%, such as 30% or 0.3, or none (the same as 100%)";
inline constexpr char kGuardForms[] =
    "a part of its iterations per second from 1% to 50%, such as 5% or 0.05, or none";
inline constexpr char kDeadlineForms[] =
    "a time from the job's start, such as 90s, 10m or 1h30m, up to 24h, or none (the same as 0)";
inline constexpr char kBytesForms[] =
    "a size such as 20GiB, 512MiB, 1.5g or 1073741824 (K, M, G, T and KiB, MiB, GiB, TiB are "
    "powers of 1024; KB, MB, GB, TB powers of 1000; a number of bytes below 1 MiB needs a unit)";
inline constexpr char kMemoryForms[] =
    "a size such as 20GiB, 512MiB, 1.5g or 1073741824, a part of each GPU such as 45%, or none (K, "
    "M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB powers of 1000; a number of "
    "bytes below 1 MiB needs a unit)";
inline constexpr char kOnOomForms[] = "fail or wait";
inline constexpr char kParkForms[] = "host, peer or auto";
inline constexpr char kSecondsForms[] = "a time such as 300s, 5m or 1h30m, from 0 to 24h";
inline constexpr char kEveryForms[] =
    "a number of steps from 1 to 999999, yes (the same as 1) or no";
inline constexpr char kIslandForms[] =
    "a name of 1 to 31 letters, digits, '.', '_' or '-', starting with a letter or digit, yes (the "
    "same as 'default') or no";
inline constexpr char kYesNoForms[] = "yes or no";
inline constexpr char kPauseForms[] =
    "a time such as 60s, 5m or 1h30m, above 0 and up to 24h, or none";
inline constexpr char kIdleReleaseForms[] =
    "a time without work such as 60s or 1h30m, above 0 and up to 24h, perhaps with ,contexts; or "
    "none";
inline constexpr char kNameForms[] =
    "1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit";

constexpr const char* to_string(Priority priority) {
  return priority == Priority::kHigh ? "high" : priority == Priority::kLow ? "low" : "normal";
}

inline std::optional<bool> parse_yes_no(std::string_view text) {
  if (text == "yes") return true;
  if (text == "no") return false;
  return std::nullopt;
}

// Each so many steps; 0, for "no": never.
inline std::optional<std::uint32_t> parse_every(std::string_view text) {
  if (const auto answer = parse_yes_no(text)) return *answer ? 1 : 0;
  if (text.empty() || text.size() > 6) return std::nullopt;
  std::uint32_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return number != 0 ? std::optional(number) : std::nullopt;
}

// What an allocation beyond the quota gets: the driver's error, or a wait for memory.
enum class OnOom : std::uint8_t { kFail, kWait };

inline std::optional<OnOom> parse_on_oom(std::string_view text) {
  if (text == "fail") return OnOom::kFail;
  if (text == "wait") return OnOom::kWait;
  return std::nullopt;
}

// The place of memory that is swapped out: the host, or another GPU of the job as long as that has
// unreserved room. With kAuto, memory that finds no room there goes to the host.
enum class Park : std::uint8_t { kHost, kPeer, kAuto };

constexpr const char* to_string(Park park) {
  return park == Park::kAuto ? "auto" : park == Park::kPeer ? "peer" : "host";
}

inline std::optional<Park> parse_park(std::string_view text) {
  if (text == "host") return Park::kHost;
  if (text == "peer") return Park::kPeer;
  if (text == "auto") return Park::kAuto;
  return std::nullopt;
}

inline std::optional<Priority> parse_priority(std::string_view text) {
  if (text == "high") return Priority::kHigh;
  if (text == "normal") return Priority::kNormal;
  if (text == "low") return Priority::kLow;
  return std::nullopt;
}

namespace detail {

// A plain decimal number without sign, exponent or surroundings; `rest` receives what follows.
inline std::optional<double> leading_number(std::string_view text, std::string_view& rest) {
  std::size_t digits = 0;
  std::size_t at = 0;
  bool point = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (c == '.' && !point) {
      point = true;
    } else {
      break;
    }
  }
  if (digits == 0 || digits > 20) return std::nullopt;
  rest = text.substr(at);
  return std::strtod(std::string(text.substr(0, at)).c_str(), nullptr);
}

// Whether `text` is `lower` (ASCII lower case), in whatever case it was written.
constexpr bool same_word(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (c != lower[i]) return false;
  }
  return true;
}

}  // namespace detail

// The word that takes a setting away. For those settings that a job may be without.
constexpr bool is_none(std::string_view text) { return detail::same_word(text, "none"); }

// Device memory in bytes; 1 byte to 1 PiB. Zero makes no sense as a quota and is refused. So is a
// small number without a unit: who writes 10 means gigabytes.
inline std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::string_view unit;
  const auto number = detail::leading_number(text, unit);
  if (!number) return std::nullopt;
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit kUnits[] = {
      {"", 1},       {"b", 1},        {"k", 0x1p10},   {"kib", 0x1p10}, {"kb", 1e3},
      {"m", 0x1p20}, {"mib", 0x1p20}, {"mb", 1e6},     {"g", 0x1p30},   {"gib", 0x1p30},
      {"gb", 1e9},   {"t", 0x1p40},   {"tib", 0x1p40}, {"tb", 1e12},
  };
  for (const Unit& candidate : kUnits) {
    if (!detail::same_word(unit, candidate.name)) continue;
    const double bytes = std::floor(*number * candidate.bytes);
    const double least = unit.empty() ? 0x1p20 : 1;
    if (bytes < least || bytes > 0x1p50) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
  }
  return std::nullopt;
}

// A weight among the jobs of one class, 0.01 to 1000.
inline constexpr double kMostWeight = 1000;
inline std::optional<double> parse_weight(std::string_view text) {
  std::string_view rest;
  const auto number = detail::leading_number(text, rest);
  if (!number || !rest.empty() || *number < 0.01 || *number > kMostWeight) return std::nullopt;
  return number;
}

// The same, or "auto": the weight follows what the job gains by it, and begins as the default.
struct Share {
  double weight = 1;
  bool automatic = false;
  bool operator==(const Share&) const = default;
};
inline std::optional<Share> parse_share(std::string_view text) {
  if (detail::same_word(text, "auto")) return Share{1, true};
  const auto weight = parse_weight(text);
  return weight ? std::optional(Share{*weight, false}) : std::nullopt;
}

// A part of a whole, 0 to 1: "30%" or "0.3".
inline std::optional<double> parse_ratio(std::string_view text) {
  std::string_view unit;
  const auto number = detail::leading_number(text, unit);
  if (!number || (!unit.empty() && unit != "%")) return std::nullopt;
  const double ratio = unit.empty() ? *number : *number / 100;
  return ratio <= 1 ? std::optional(ratio) : std::nullopt;
}

// The memory of a job on each GPU: bytes, or a part of what that GPU has, 0.01 to 1.
struct MemoryQuota {
  std::uint64_t bytes = 0;
  double part = 0;  // 0: `bytes` says it
  std::uint64_t of(std::uint64_t gpu_bytes) const {
    return part > 0 ? static_cast<std::uint64_t>(part * static_cast<double>(gpu_bytes)) : bytes;
  }
  bool operator==(const MemoryQuota&) const = default;
};
// A job may be without one: what is read is empty for "none". A part has its %, or 1 were a byte.
using Quota = std::optional<MemoryQuota>;
inline std::optional<Quota> parse_quota(std::string_view text) {
  if (is_none(text)) return Quota();
  if (text.ends_with('%')) {
    const auto part = parse_ratio(text);
    if (!part || *part < 0.01) return std::nullopt;
    return MemoryQuota{0, *part};
  }
  const auto bytes = parse_bytes(text);
  return bytes ? std::optional<Quota>(MemoryQuota{*bytes}) : std::nullopt;
}

// A ceiling on a job's part of the GPU's time, 0.01 to 1; 0: none. All of it is no limit.
inline std::optional<double> parse_limit(std::string_view text) {
  if (is_none(text)) return 0;
  const auto ratio = parse_ratio(text);
  if (!ratio || *ratio < 0.01) return std::nullopt;
  return *ratio < 1 ? *ratio : 0;
}

// What others may take of a job's iterations per second, 0.01 to 0.5; 0: it has no guard.
inline std::optional<double> parse_guard(std::string_view text) {
  if (is_none(text)) return 0;
  const auto ratio = parse_ratio(text);
  return ratio && *ratio >= 0.01 && *ratio <= 0.5 ? ratio : std::nullopt;
}

// A span of 0 to 86400 seconds. A bare number is seconds; several parts go from the larger unit to
// the smaller, each once: 1h30m.
inline std::optional<std::chrono::nanoseconds> parse_seconds(std::string_view text) {
  const auto span = [](double seconds) -> std::optional<std::chrono::nanoseconds> {
    if (seconds > 86400) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds));
  };
  struct Unit {
    std::string_view name;
    double seconds;
  };
  static constexpr Unit kUnits[] = {{"h", 3600}, {"m", 60}, {"s", 1}, {"ms", 1e-3}};
  std::string_view rest;
  double sum = 0;
  std::size_t next = 0;  // the first unit that may still come
  for (bool first = true; first || !text.empty(); first = false) {
    const auto number = detail::leading_number(text, rest);
    if (!number) return std::nullopt;
    if (first && rest.empty()) return span(*number);
    const std::string_view name = rest.substr(0, rest.find_first_of("0123456789."));
    std::size_t unit = next;
    while (unit < std::size(kUnits) && !detail::same_word(name, kUnits[unit].name)) ++unit;
    if (unit == std::size(kUnits)) return std::nullopt;
    sum += *number * kUnits[unit].seconds;
    next = unit + 1;
    text = rest.substr(name.size());
  }
  return span(sum);
}

// When a job should be done, after its start; 0: it has no deadline.
inline std::optional<std::chrono::nanoseconds> parse_deadline(std::string_view text) {
  return is_none(text) ? std::optional(std::chrono::nanoseconds{0}) : parse_seconds(text);
}

// How long a pause lasts, or a job is idle; 0, for "none": without end, never.
inline std::optional<std::chrono::nanoseconds> parse_pause(std::string_view text) {
  if (is_none(text)) return std::chrono::nanoseconds{0};
  const auto span = parse_seconds(text);
  return span && span->count() > 0 ? span : std::nullopt;
}

// When an idle job's memory leaves: 0, for "none": never. "10m,contexts": its contexts as well.
struct IdleRelease {
  std::chrono::nanoseconds after{0};
  bool contexts = false;
  bool operator==(const IdleRelease&) const = default;
};
inline std::optional<IdleRelease> parse_idle_release(std::string_view text) {
  constexpr std::string_view kContexts = ",contexts";
  const bool contexts = text.size() > kContexts.size() && text.ends_with(kContexts);
  if (contexts) text.remove_suffix(kContexts.size());
  const auto after = parse_pause(text);
  if (!after || (contexts && after->count() == 0)) return std::nullopt;
  return IdleRelease{*after, contexts};
}

// What the owner of a monitor may choose.
inline constexpr std::string_view kPolicyNames[] = {"priority", "fair", "exclusive", "deadline"};
inline constexpr std::string_view kMeansNames[] = {"auto", "slice", "gate", "none"};
// How a high job that waits for its CPU is served beside a lower one.
inline constexpr std::string_view kWaitsNames[] = {"slices", "foreseen"};
inline constexpr char kWaitsForms[] = "slices or foreseen";
inline constexpr char kPolicyForms[] = "priority, fair, exclusive or deadline";
inline constexpr char kMeansForms[] = "auto, slice, gate or none";
inline constexpr char kSliceForms[] = "a time from 2ms to 100ms";
inline constexpr char kMinimumForms[] =
    "a part of the GPU's time from 0% to 50%, such as 2% or 0.02, or none (the same as 0%)";

// The position of `text` among the names, which is the value of the enumeration behind them.
template <std::size_t kCount>
constexpr std::optional<std::size_t> position_of(std::string_view text,
                                                 const std::string_view (&names)[kCount]) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (names[i] == text) return i;
  }
  return std::nullopt;
}

// What a busy high class leaves to the lower ones, 0 to 0.5.
inline std::optional<double> parse_minimum(std::string_view text) {
  if (is_none(text)) return 0;
  const auto ratio = parse_ratio(text);
  return ratio && *ratio <= 0.5 ? ratio : std::nullopt;
}

inline constexpr std::uint32_t kUsualSliceUs = 25'000;  // unless another is chosen

// The slice of each of some equal jobs, in microseconds: 2,000 to 100,000.
inline std::optional<std::uint32_t> parse_slice(std::string_view text) {
  using std::chrono::milliseconds;
  const auto slice = parse_seconds(text);
  if (!slice || *slice < milliseconds(2) || *slice > milliseconds(100)) return std::nullopt;
  return static_cast<std::uint32_t>(*slice / std::chrono::microseconds(1));
}

inline bool valid_name(std::string_view text) {
  if (text.empty() || text.size() > 63) return false;
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (!alphanumeric(text.front())) return false;
  for (const char c : text) {
    if (!alphanumeric(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

inline std::optional<std::string> parse_name(std::string_view text) {
  return valid_name(text) ? std::optional<std::string>(text) : std::nullopt;
}

// The island that a job runs in; empty, for "no": none.
inline constexpr std::size_t kLongestIsland = 31;
inline std::optional<std::string> parse_island(std::string_view text) {
  if (is_none(text)) return "";
  if (const auto answer = parse_yes_no(text)) return *answer ? "default" : "";
  if (text.size() > kLongestIsland) return std::nullopt;
  return parse_name(text);
}

// A kind of value that a setting of a job may have: how it is read, and what may be written.
template <auto kParser, const char* kText>
struct Kind {
  using Value = typename decltype(kParser(std::string_view()))::value_type;
  static std::optional<Value> parse(std::string_view text) { return kParser(text); }
  static constexpr const char* kForms = kText;
};

// Whether two texts mean the same: 0.25GiB and 256MiB; empty is none.
// pre: a setting that may be empty may be "none".
template <typename Kind>
bool same_value(std::string_view one, std::string_view other) {
  const auto value = [](std::string_view text) {
    return Kind::parse(text.empty() ? "none" : text);
  };
  return value(one) == value(other);
}

namespace kind {

using Name = Kind<&parse_name, kNameForms>;
using Class = Kind<&parse_priority, kPriorityForms>;
using Weight = Kind<&parse_share, kShareForms>;
using Limit = Kind<&parse_limit, kLimitForms>;
using Deadline = Kind<&parse_deadline, kDeadlineForms>;
using Memory = Kind<&parse_quota, kMemoryForms>;
using OnOom = Kind<&parse_on_oom, kOnOomForms>;
using Timeout = Kind<&parse_seconds, kSecondsForms>;
using Every = Kind<&parse_every, kEveryForms>;
using YesNo = Kind<&parse_yes_no, kYesNoForms>;
using Park = Kind<&parse_park, kParkForms>;
using Guard = Kind<&parse_guard, kGuardForms>;
using Island = Kind<&parse_island, kIslandForms>;
using Idle = Kind<&parse_idle_release, kIdleReleaseForms>;

}  // namespace kind
}  // namespace switchyard
