// Closes descriptors that came from clients, on threads that nobody waits for.
//
// Concept. To close the last descriptor of a file may take for ever: a socket lingers, a tape
// rewinds, a file server does not answer. So whatever a client may have sent is never closed on the
// loop, and that includes a socket in which such descriptors still wait. Each user has a thread at
// most, so one that stands still keeps nobody else's descriptors open.
//
// Threading: close() and finish() on the loop's thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "switchyard/fd.h"

namespace switchyard::monitor {

class Closer {
 public:
  Closer();
  ~Closer();  // Does not wait: what is left is closed with the process.
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // `keeps` is let go once they are closed; `then` is called by finish() after that.
  void close(uid_t uid, std::vector<Fd> descriptors, std::shared_ptr<void> keeps = nullptr,
             std::function<void()> then = nullptr);
  // Hangs up at once, and closes the socket. What waits in it may be descriptors.
  void hang_up(uid_t uid, int socket, std::shared_ptr<void> keeps = nullptr);

  // Readable when finish() has something to call.
  int finished() const;
  void finish();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace switchyard::monitor
