// One job on one GPU while the recording is told: which span it is in now.
//
// Threading: a plain value.
#pragma once

#include <map>
#include <optional>

#include "tools/trace/spans.h"

namespace switchyard::tools::trace {

class LaneTeller {
 public:
  using Events = std::vector<const Event*>;  // of the job, in order of time

  // `gpu`: its place.
  LaneTeller(const Recording& recording, JobKey job, std::size_t gpu, const Events& events);

  // Its spans, from the job's beginning to its end.
  Lane lane() &&;
  // Whether an event or a gate says that it has to do with that GPU.
  bool used() const { return used_; }

 private:
  bool mine(const Event& event) const { return event.gpu == 0 || event.gpu == gpu_ + 1; }
  void begin_as_now(const Job& job);
  void begin_as_first_told(const Job& job);
  void tell(const Event& event);
  void tell_status(const Event& event);
  void tell_gate(const Event& event);
  void tell_memory(const Event& event);
  void seen(const Span& status);
  // Reasons for which all gates of the job are closed; 0: one is open.
  std::uint32_t closed() const;
  Code as_gates_say(const Code& code) const;
  void set(std::int64_t at, Span next);

  JobKey job_;
  std::size_t gpu_;
  const Events& events_;
  std::int64_t to_ = 0;
  bool used_ = false;
  bool ended_ = false;
  Span of_job_;                                  // the last state of the job itself,
  std::optional<Span> own_;                      // and of the job on this GPU, if it has one
  Code worked_;                                  // the last one that gates decide
  std::map<std::int64_t, std::uint32_t> gates_;  // by pid
  std::map<std::int64_t, std::int64_t> gone_;    // the last event of a process that is no more
  Span pause_;                                   // who paused it
  Span now_;
  std::vector<Span> spans_;
};

}  // namespace switchyard::tools::trace
