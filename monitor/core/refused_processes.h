// The processes whose Hello was refused. While it lives, the library of such a process asks again
// every two seconds, and the answer is the same.
//
// Concept. The log has a line for each process and reason, not one for each question. `ps` asks
// here which library an unmanaged process has. Anybody can start such processes, so few of each
// user are remembered, and no line is written for more of them.
//
// Threading: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "monitor/core/account.h"
#include "monitor/platform/processes.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor {

class RefusedProcesses {
 public:
  static constexpr std::size_t kMostOfUser = 64;
  static constexpr std::size_t kMost = 1024;
  static constexpr Time kForgotten = std::chrono::seconds(10);  // after the last question

  // True: the log has not said it yet. `layout`: of the page, as its library speaks it; 0: as ours.
  bool note(const Peer& peer, const std::string& why, std::uint32_t layout, Time now);

  // The layouts that libraries of refused processes speak, by the job that `job_of` says a process
  // belongs to. It is asked once about each.
  std::map<JobKey, std::uint32_t> layouts(const std::function<JobKey(pid_t)>& job_of, Time now);

  // The layout that the library of a refused process speaks; 0: it speaks ours, or never asked.
  std::uint32_t layout_of(pid_t pid, Time now) const;

 private:
  struct Refused {
    std::string why;
    std::uint32_t layout = 0;
    Time asked_at{0};
    std::optional<JobKey> job = {};  // 0: it belongs to none
  };
  std::map<std::pair<pid_t, uid_t>, Refused> all_;
};

}  // namespace switchyard::monitor
