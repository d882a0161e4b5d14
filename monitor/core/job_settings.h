// The knobs of a job, understood: from the text of its card to values, and what root allows.
//
// Threading: pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "monitor/platform/owner.h"
#include "monitor/platform/time.h"
#include "switchyard/card.h"
#include "switchyard/settings.h"

namespace switchyard::monitor {

// One value for each row of card.h, of the row's kind (settings.h); at first what its default text
// means. `limit` is 0 for a job without one. A job that is oversubscribed, or released when it
// idles, is swappable, too.
struct Knobs {
#define SWITCHYARD_KNOB_VALUE(field, env, capacity, fallback, Kind, ...) \
  kind::Kind::Value field = kind::Kind::parse(fallback).value_or(kind::Kind::Value());
  SWITCHYARD_KNOBS(SWITCHYARD_KNOB_VALUE)
#undef SWITCHYARD_KNOB_VALUE
};

// The defaults where a text is empty. Nullopt when a text is invalid; `why` then has the knob,
// the value and the accepted forms. REQUIRES: every text of the card ends in a zero.
std::optional<Knobs> parse_card(const JobCard& card, std::string& why);

// Makes the text "none" of a knob that a job may be without an empty one. So pages and later
// changes see a job that never had it.
void remove_none(JobCard& card);

// Puts the texts of `defaults` where `card` has none.
void fill_empty(JobCard& card, const JobCard& defaults);

// The knobs that `said` sets to other values than `asked`, as "share 4, limit 30%"; empty: none.
// Names set nothing, nor does the value of a default.
std::string other_settings(const JobCard& asked, const JobCard& said);

// Puts `text` into one field. False: it does not fit.
template <std::size_t kCapacity>
bool set_text(char (&field)[kCapacity], const std::string& text) {
  if (text.size() >= kCapacity || text.find('\0') != std::string::npos) return false;
  for (std::size_t i = 0; i < kCapacity; ++i) field[i] = i < text.size() ? text[i] : '\0';
  return true;
}

// What users other than root may ask at most.
struct Caps {
  Priority priority = Priority::kHigh;
  std::set<uid_t> may_be_high;  // besides root, whatever `priority` says
  std::optional<double> share;
  std::optional<std::uint64_t> memory_bytes;
  // The rule that says each, with its place: an option, or a key of the file with its line.
  struct From {
    std::string priority, share, memory;
  } from = {};

  Priority priority_of(uid_t uid) const {
    return may_be_high.count(uid) != 0 ? Priority::kHigh : priority;
  }
  // The part of `knobs` over the cap, as text that names the cap and its rule; empty when there is
  // none. `gpu_bytes`: of the largest GPU.
  std::string exceeded(const Owner& owner, const Knobs& knobs, std::uint64_t gpu_bytes) const;
  // The most that a job of that user may have of each GPU, whether it asks for a quota or not;
  // none: no cap.
  std::optional<std::uint64_t> ceiling(const Owner& owner) const {
    return owner.is_root() ? std::nullopt : memory_bytes;
  }
  // What the weight of a job of that user may become by itself.
  double most_weight(const Owner& owner) const {
    return owner.is_root() ? kMostWeight : share.value_or(kMostWeight);
  }
  // Lowers what is over to the cap, in the values and in the card's text.
  void lower(const Owner& owner, Knobs& knobs, JobCard& card, std::uint64_t gpu_bytes) const;
};

}  // namespace switchyard::monitor
