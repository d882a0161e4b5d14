#include "tools/why/seen.h"

#include <fmt/format.h>

namespace switchyard::tools {
namespace {

using nlohmann::json;

int rank_of_priority(const json& job) {
  const std::string priority = text_of(job, "priority", "normal");
  return priority == "high" ? 2 : priority == "low" ? 0 : 1;
}

}  // namespace

std::string named(const std::string& name, const std::string& user) {
  return fmt::format("the job '{}' of {}", name, user);
}

std::string causer(const Seen& seen, const std::string& none) {
  const std::string name = text_of(seen.by(), "name", "");
  return name.empty() ? none : named(name, text_of(seen.by(), "user"));
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

double limit_of(const Seen& seen) { return real_of(seen.job, "limit_ratio").value_or(0); }

std::string limit_help(const Seen& seen) {
  if (limit_of(seen) <= 0) {
    return "It holds a ceiling for another job's --guard, or its user's: it has no --limit.";
  }
  return fmt::format("`switchyard set {} --limit PART` allows more, and `--limit none` all.",
                     seen.name());
}

std::string guard_help(const std::string& name) {
  if (name.empty()) return "`switchyard ps --json` names it in held_back_for.";
  return fmt::format("`switchyard set {} --guard PART` lets it be slowed down by more.", name);
}

// How `seen` gets more of the time that `other` has.
std::string share_help(const Seen& seen, const json* other) {
  const std::string name = seen.name();
  if (other == nullptr || rank_of_priority(*other) == rank_of_priority(seen.job)) {
    return fmt::format("`switchyard set {} --share WEIGHT` gives it more; its weight is {:.3g}{}.",
                       name, real_of(seen.job, "share_weight").value_or(1),
                       other == nullptr
                           ? ""
                           : fmt::format(", that of {} {:.3g}", text_of(*other, "name"),
                                         real_of(*other, "share_weight").value_or(1)));
  }
  if (rank_of_priority(*other) < rank_of_priority(seen.job)) {
    return "It has the higher priority, so what is left is the time of a switch.";
  }
  return fmt::format(
      "{} has priority {} and goes first; `switchyard set {} --priority {}` makes "
      "them equal.",
      text_of(*other, "name"), text_of(*other, "priority"), name, text_of(*other, "priority"));
}

}  // namespace switchyard::tools
