#include "tools/top/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/base/output.h"
#include "tools/ps/drawing.h"
#include "tools/ps/fields.h"

namespace switchyard::tools::top {
namespace {

using nlohmann::json;

// Samples that are kept: as many as the widest screen shows.
constexpr std::size_t kKept = 40;
// Lowest first.
constexpr const char* kPriorities[] = {"low", "normal", "high"};

// A process that no job has, as if it were one. Its share is estimated, always.
Model::Entry entry_of(const json& process) {
  const std::uint64_t pid = number_of(process, "pid");
  const std::string uuid = text_of(process, "gpu_uuid");
  return {fmt::format("{}/{}", pid, uuid),
          {{"name", "~" + text_of(process, "name")},
           {"user", text_of(process, "user")},
           {"state", "unmanaged"},
           {"state_text", fmt::format("unmanaged {}", pid)},
           {"since_seconds", real_of(process, "since_seconds").value_or(0)},
           {"processes", {{{"pid", pid}}}},
           {"gpus",
            {{{"uuid", uuid},
              {"index", number_of(process, "gpu_index")},
              {"active", true},
              {"share_got_ratio", process.value("share_got_ratio", json())},
              {"share_got_estimated", true},
              {"memory_used_bytes", number_of(process, "memory_used_bytes")}}}}},
          false};
}

// Of its quota; without one, of the memory of the GPUs that it is on.
std::optional<double> memory_ratio(const json& job, const json& gpus) {
  const MemoryUse use = memory_of({&job, nullptr});
  std::uint64_t whole = use.quota;
  for (const json& on : list_of(job, "gpus")) {
    for (const json& gpu : gpus) {
      if (use.quota != 0 || !is_on(on) || text_of(gpu, "uuid") != text_of(on, "uuid")) continue;
      whole += number_of(gpu, "memory_total_bytes");
    }
  }
  if (whole == 0) return std::nullopt;
  return static_cast<double>(use.used) / static_cast<double>(whole);
}

void keep(std::deque<std::optional<double>>& past, std::optional<double> sample) {
  past.push_back(sample);
  if (past.size() > kKept) past.pop_front();
}

// The first has the greatest.
double weight_of(const json& job, Sort sort) {
  if (sort == Sort::kMemory) return static_cast<double>(memory_of({&job, nullptr}).used);
  if (sort == Sort::kAge) return real_of(job, "since_seconds").value_or(0);
  const auto share = share_of({&job, nullptr});
  return share ? share->ratio : -1;
}

}  // namespace

std::optional<Error> keep_selected(Look& look, const Selection& selection) {
  look.summary = summary_of(look.ps, list_of(look.status, "gpus"));
  const json jobs = std::move(look.ps["jobs"]), outside = std::move(look.ps["outside"]);
  json rows = jobs;
  for (const json& process : outside) rows.push_back(entry_of(process).job);
  json kept_jobs = json::array(), kept_outside = json::array();
  const auto found = select(rows, selection);
  for (const std::size_t place : found ? *found : std::vector<std::size_t>()) {
    if (place < jobs.size()) {
      kept_jobs.push_back(jobs[place]);
    } else {
      kept_outside.push_back(outside[place - jobs.size()]);
    }
  }
  look.ps["jobs"] = std::move(kept_jobs);
  look.ps["outside"] = std::move(kept_outside);
  return found ? std::nullopt : std::optional(found.error());
}

std::string text_of_order(const Order& order) {
  switch (order.what) {
    case Order::What::kPause:
      return "pause " + order.name;
    case Order::What::kResume:
      return "resume " + order.name;
    case Order::What::kSetPriority:
      return fmt::format("set the priority of {} to {}", order.name, order.priority);
    case Order::What::kEnd:
      return fmt::format("end {} by SIGTERM", order.name);
    case Order::What::kQuit:
      break;
  }
  return "quit";
}

const char* name_of(Sort sort) {
  constexpr const char* kNames[] = {"GPU%", "memory", "age", "name"};
  return kNames[static_cast<int>(sort)];
}

void Model::take(Look look, Time now) {
  look_ = std::move(look);
  taken_at_ = now;
  missing_.clear();
  entries_.clear();
  for (json& job : look_.ps["jobs"]) entries_.push_back({text_of(job, "job"), job});
  for (const json& process : list_of(look_.ps, "outside")) entries_.push_back(entry_of(process));
  std::map<std::string, Past> pasts;
  for (const Entry& entry : entries_) {
    Past& past = pasts[entry.id] = std::move(pasts_[entry.id]);
    const auto share = share_of({&entry.job, nullptr});
    keep(past.share, share ? std::optional(share->ratio) : std::nullopt);
    keep(past.memory, memory_ratio(entry.job, gpus()));
  }
  pasts_ = std::move(pasts);
  arrange();
  follow();
}

void Model::miss(const std::string& why) { missing_ = why; }

// The selected row stays selected. Where it has gone, the row in its place is.
void Model::follow() {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [this](const Entry& entry) { return entry.id == selected_; });
  if (found != entries_.end()) {
    place_ = static_cast<std::size_t>(found - entries_.begin());
  } else if (!entries_.empty()) {
    place_ = std::min(place_, entries_.size() - 1);
    selected_ = entries_[place_].id;
  } else {
    place_ = 0;
    selected_.clear();
  }
}

// Jobs first.
void Model::arrange() {
  const auto is_before = [this](const Entry& a, const Entry& b) {
    if (a.managed != b.managed) return a.managed;
    if (sort_ != Sort::kName) {
      const double left = weight_of(a.job, sort_), right = weight_of(b.job, sort_);
      if (left != right) return left > right;
    }
    return std::pair(text_of(a.job, "name"), a.id) < std::pair(text_of(b.job, "name"), b.id);
  };
  std::sort(entries_.begin(), entries_.end(), is_before);
}

bool Model::move(int key, std::size_t page) {
  if (key < kUp || key > kLast) return false;
  if (entries_.empty()) return true;
  const std::size_t last = entries_.size() - 1;
  page = std::max<std::size_t>(page, 1);
  if (key == kUp) place_ -= std::min<std::size_t>(place_, 1);
  if (key == kDown) place_ = std::min(place_ + 1, last);
  if (key == kPageUp) place_ -= std::min(place_, page);
  if (key == kPageDown) place_ = std::min(place_ + page, last);
  if (key == kHome) place_ = 0;
  if (key == kLast) place_ = last;
  selected_ = entries_[place_].id;
  return true;
}

void Model::ask(Order::What what) {
  const Entry* entry = selected();
  if (entry == nullptr) return say("there is no job");
  const std::string name = text_of(entry->job, "name", entry->id);
  if (!entry->managed) return say(name + " is unmanaged: only jobs can be changed here");
  question_ = Order{what, entry->id, name, ""};
}

std::optional<Order> Model::press(int key, std::size_t page) {
  if (question_) {
    auto order = std::exchange(question_, std::nullopt);
    if (key == 'y' || key == 'Y') return order;
    say("nothing was changed");
    return std::nullopt;
  }
  message_.clear();
  if (std::exchange(helps_, false)) return std::nullopt;
  if (move(key, page)) return std::nullopt;
  if (key == 'q') return Order{};
  if (key == '?' || key == 'h') helps_ = true;
  if (key == 'p') ask(Order::What::kPause);
  if (key == 'r') ask(Order::What::kResume);
  if (key == 'k') ask(Order::What::kEnd);
  if (key == 's') {
    sort_ = static_cast<Sort>((static_cast<int>(sort_) + 1) % 4);
    arrange();
    follow();
  }
  // The key of '+' has '=' on many keyboards.
  if (key == '+' || key == '=' || key == '-') {
    ask(Order::What::kSetPriority);
    if (!question_) return std::nullopt;
    const std::string now = text_of(selected()->job, "priority");
    const auto at = std::find(std::begin(kPriorities), std::end(kPriorities), now);
    const auto end = key == '-' ? std::begin(kPriorities) : std::prev(std::end(kPriorities));
    if (at == std::end(kPriorities) || at == end) {
      say(fmt::format("{} has priority {} already", question_->name, now));
      question_.reset();
    } else {
      question_->priority = key == '-' ? *std::prev(at) : *std::next(at);
    }
  }
  return std::nullopt;
}

std::string Model::summary() const {
  return look_.summary.empty() ? summary_of(look_.ps, gpus()) : look_.summary;
}

const json& Model::gpus() const { return list_of(look_.status, "gpus"); }

const Model::Past& Model::past(const std::string& id) const {
  static const Past kNone;
  const auto found = pasts_.find(id);
  return found != pasts_.end() ? found->second : kNone;
}

const Model::Entry* Model::selected() const {
  return place_ < entries_.size() ? &entries_[place_] : nullptr;
}

std::string Model::notice(Time now) const {
  if (missing_.empty()) return look_.notice;
  const std::chrono::duration<double> age = now - taken_at_;
  return fmt::format("shown is what was {} ago: {}", compact_seconds(age.count()), missing_);
}

}  // namespace switchyard::tools::top
