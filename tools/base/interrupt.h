// Ctrl-C while a command waits for an answer: it can take its order back before it ends.
//
// Concept. While one of these lives, SIGINT ends the wait (monitor_client.h) and nothing else. Then
// the command says what it undid, and ends as a shell expects it.
//
// Threading: one at a time, on the main thread.
#pragma once

#include <signal.h>

namespace switchyard::tools {

class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // Somebody pressed it since one of these began.
  static bool came();

 private:
  struct sigaction before_ {};
};

// The exit code of a command that SIGINT ended.
inline constexpr int kInterrupted = 128 + SIGINT;

}  // namespace switchyard::tools
