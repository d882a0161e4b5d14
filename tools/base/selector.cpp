#include "tools/base/selector.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tools/base/output.h"
#include "tools/base/parts.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using Places = std::vector<std::size_t>;

constexpr const char* kStates[] = {"running", "idle",   "held",    "waiting",  "paused",
                                   "swapped", "moving", "stopped", "unmanaged"};
// Candidates that an error names, at most.
constexpr std::size_t kMostNamed = 8;
// A shorter beginning of an id is a mistyped name.
constexpr std::size_t kLeastOfId = 3;

bool is_glob(const std::string& word) { return word.find_first_of("*?") != std::string::npos; }

bool is_number(const std::string& word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
}

template <typename Fits>
Places places_of(const json& jobs, Fits fits) {
  Places found;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (fits(jobs[i])) found.push_back(i);
  }
  return found;
}

bool has_process(const json& job, const std::string& pid) {
  const json& processes = list_of(job, "processes");
  return std::any_of(processes.begin(), processes.end(), [&](const json& process) {
    return std::to_string(number_of(process, "pid")) == pid;
  });
}

std::string candidates(const json& jobs, const Places& places) {
  std::string text;
  for (std::size_t i = 0; i < std::min(places.size(), kMostNamed); ++i) {
    const json& job = jobs[places[i]];
    const std::string name = text_of(job, "name");
    const std::string id = text_of(job, "job");
    text += (i == 0 ? "" : ", ") + id + (name == id ? "" : " (" + name + ")");
  }
  const std::size_t more = places.size() - std::min(places.size(), kMostNamed);
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

Error none(const std::string& what) {
  return {kNoSuchJobOrGpu, fmt::format("no job {}; `switchyard ps` lists the jobs", what)};
}

Result<Places> meant_by(const json& jobs, const std::string& word) {
  Places found = places_of(jobs, [&](const json& job) {
    return text_of(job, "name") == word || text_of(job, "job") == word;
  });
  if (!found.empty()) return found;
  if (is_glob(word)) {
    found = places_of(jobs, [&](const json& job) {
      return fits_glob(text_of(job, "name"), word) || fits_glob(text_of(job, "job"), word);
    });
    if (found.empty()) return none(fmt::format("fits '{}'", word));
    return found;
  }
  if (is_number(word)) {
    found = places_of(jobs, [&](const json& job) { return has_process(job, word); });
    if (!found.empty()) return found;
  }
  if (word.size() >= kLeastOfId) {
    found =
        places_of(jobs, [&](const json& job) { return text_of(job, "job").rfind(word, 0) == 0; });
  }
  if (found.empty()) return none(fmt::format("'{}'", word));
  if (found.size() == 1) return found;
  return Error{kUsage, fmt::format("'{}' begins the ids of {} jobs: {}; give more of it", word,
                                   found.size(), candidates(jobs, found))};
}

bool fits_user(const json& job, const std::vector<std::string>& users) {
  return std::any_of(users.begin(), users.end(), [&](const std::string& user) {
    return user == text_of(job, "user", "") ||
           (is_number(user) && user == std::to_string(number_of(job, "uid")));
  });
}

bool fits_gpu(const json& job, const std::vector<std::string>& gpus) {
  const json& all = list_of(job, "gpus");
  return std::any_of(all.begin(), all.end(), [&](const json& gpu) {
    return is_on(gpu) && std::any_of(gpus.begin(), gpus.end(), [&](const std::string& named) {
             return names_gpu(named, gpu);
           });
  });
}

std::optional<Error> refuse(const Selection& selection) {
  for (const std::string& user : parts_of(selection.users)) {
    if (user.empty()) return bad_value("--user", selection.users, "names or numbers of users");
  }
  for (const std::string& state : parts_of(selection.states)) {
    if (std::find(std::begin(kStates), std::end(kStates), state) == std::end(kStates)) {
      return bad_value("--state", state, fmt::format("{}", fmt::join(kStates, ", ")));
    }
  }
  for (const std::string& gpu : parts_of(selection.gpus)) {
    if (!may_name_gpu(gpu)) {
      return bad_value("--gpu", gpu, "the index of a GPU, or the beginning of its UUID");
    }
  }
  return std::nullopt;
}

}  // namespace

bool may_name_gpu(const std::string& text) {
  const bool uuid = text.size() > 4 && (text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0);
  return uuid || is_number(text);
}

bool names_gpu(const std::string& text, const json& gpu) {
  return is_number(text) ? std::to_string(number_of(gpu, "index")) == text
                         : text_of(gpu, "uuid").rfind(text, 0) == 0;
}

bool Selection::is_pattern() const {
  return has_option() || std::any_of(words.begin(), words.end(), is_glob);
}

bool fits_glob(const std::string& text, const std::string& glob) {
  return ::fnmatch(glob.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

bool is_on(const json& gpu) {
  for (const char* key : {"memory_used_bytes", "launches", "graph_launches", "copies"}) {
    if (number_of(gpu, key) != 0) return true;
  }
  return truth_of(gpu, "active");
}

Result<Places> select(const json& jobs, const Selection& selection) {
  if (auto refused = refuse(selection)) return *refused;
  std::set<std::size_t> named;
  for (const std::string& word : selection.words) {
    auto found = meant_by(jobs, word);
    if (!found) return found.error();
    named.insert(found->begin(), found->end());
  }
  const auto users = parts_of(selection.users);
  const auto gpus = parts_of(selection.gpus);
  const auto states = parts_of(selection.states);
  Places meant;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::string state = text_of(jobs[i], "state");
    const bool fits =
        (selection.words.empty() || named.contains(i)) &&
        (users.empty() || fits_user(jobs[i], users)) && (gpus.empty() || fits_gpu(jobs[i], gpus)) &&
        (states.empty() || std::find(states.begin(), states.end(), state) != states.end());
    if (fits) meant.push_back(i);
  }
  return meant;
}

}  // namespace switchyard::tools
