// A job as the sentences of `why` ask about it, and words that several of them use.
//
// Threading: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/base/output.h"

namespace switchyard::tools {

// The job as the rows ask about it.
struct Seen {
  const nlohmann::json& jobs;
  const nlohmann::json& job;
  const nlohmann::json& lately;

  std::string name() const { return text_of(job, "name", text_of(job, "job")); }
  std::string user() const { return text_of(job, "user"); }
  std::string since() const {
    return human_seconds(real_of(job, "state_since_seconds").value_or(0));
  }
  const nlohmann::json& by() const {
    static const nlohmann::json nobody = nlohmann::json::object();
    const auto found = job.find("state_by");
    return found != job.end() && found->is_object() ? *found : nobody;
  }
  // Where another job is the cause; null: none is, or it is not listed.
  const nlohmann::json* other() const { return find(text_of(by(), "job", "")); }
  const nlohmann::json* find(const std::string& id) const {
    for (const nlohmann::json& each : jobs) {
      if (!id.empty() && text_of(each, "job", "") == id) return &each;
    }
    return nullptr;
  }
};

// "the job 'serve' of bob"
std::string named(const std::string& name, const std::string& user);
// The same for the cause; `none` where no job is known.
std::string causer(const Seen& seen, const std::string& none);
// With a capital letter first.
std::string capital(std::string text);

// Its --limit as a part of the GPU's time; 0: none.
double limit_of(const Seen& seen);

// Sentences of what would help against its limit, and against the guard of the job `name`; empty:
// it is not known. share_help: against the time that `other` has; null: it is not known.
std::string limit_help(const Seen& seen);
std::string guard_help(const std::string& name);
std::string share_help(const Seen& seen, const nlohmann::json* other);

}  // namespace switchyard::tools
