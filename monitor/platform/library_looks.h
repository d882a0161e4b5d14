// Whether processes of strangers may have Switchyard's library loaded.
//
// Concept. /proc/PID/maps tells it. A stranger decides how long that file is, and how long a reader
// waits for it. So a thread of its own reads it, and the monitor's loop takes the last answer. It
// is "may have" where there is none yet, and where the beginning of a long one has no library. That
// is the safe side for accounting/nvml_sampler.h.
//
// Threading: one thread asks; another reads behind it.
#pragma once

#include <sys/types.h>

#include <memory>

namespace switchyard::monitor {

class LibraryLooks {
 public:
  LibraryLooks();
  ~LibraryLooks();  // does not wait
  LibraryLooks(const LibraryLooks&) = delete;
  LibraryLooks& operator=(const LibraryLooks&) = delete;

  // By the last look at that process, and begins another one. Never waits.
  bool may_have(pid_t pid);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace switchyard::monitor
