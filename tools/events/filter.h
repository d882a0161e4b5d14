// Which events are about the jobs that are selected.
//
// Concept. A job of an event may have ended, or begin later. So the jobs to select from are those
// that live at the beginning, and those that events have named so far. An ended job is on the GPUs
// that its events name.
//
// Threading: call from the only thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "tools/base/monitor_client.h"
#include "tools/base/result.h"
#include "tools/base/selector.h"

namespace switchyard::tools {

class Filter {
 public:
  // `follows`: a pattern may fit jobs that begin later.
  Filter(Selection selection, bool follows) : selection_(std::move(selection)), follows_(follows) {}

  // Keeps the events that are about selected jobs. An error where a word names no job. The monitor
  // is asked once, which jobs live.
  std::optional<Error> keep(MonitorClient& monitor, nlohmann::json& events);

 private:
  void look(MonitorClient& monitor);
  void learn(const nlohmann::json& event);

  Selection selection_;
  bool follows_;
  bool looked_ = false;
  std::map<std::string, std::uint64_t> indexes_;  // of GPUs, by UUID
  nlohmann::json jobs_ = nlohmann::json::array();
  std::map<std::string, std::size_t> places_;  // in them, by id
};

}  // namespace switchyard::tools
