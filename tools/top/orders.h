// The orders of `top`, after a yes: the requests of `pause`, `resume` and `set`, or a signal.
//
// Concept. The monitor decides who may pause a job. A signal is sent by this process, so the kernel
// decides who may end one. The processes are opened first (pidfd), and named by the monitor again:
// a PID that has changed hands meanwhile gets nothing. In another PID namespace than the monitor's,
// its PIDs are somebody else's, and there is no signal. MPS is told to take the processes of an
// island's member out of its server before the signal.
//
// Threading: carry_out() blocks for as long as the monitor takes, in a thread of UnderWay. Only the
// answer is shared with the thread that draws.
#pragma once

#include <future>
#include <optional>
#include <string>

#include "tools/top/model.h"

namespace switchyard::tools::top {

// The answer, in a line.
std::string carry_out(const Order& order);

// One order at a time, while the screen goes on. Its end waits for the answer.
class UnderWay {
 public:
  // REQUIRES: none is.
  void begin(Order order);
  bool busy() const { return answer_.valid(); }
  // The answer, once: when it has come.
  std::optional<std::string> finished();

 private:
  std::future<std::string> answer_;
};

}  // namespace switchyard::tools::top
