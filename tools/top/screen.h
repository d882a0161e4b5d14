// The terminal of `top`, by ncurses: the one file that knows it.
//
// Concept. A screen takes the terminal over, and its end gives it back, also where a signal asks
// for the end. Signals are blocked except while a key is waited for, so none of them interrupts
// ncurses. Ctrl-Z gives the terminal back, stops, and takes it again.
//
// Threading: one at a time, on the main thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tools/base/result.h"
#include "tools/top/frame.h"

namespace switchyard::tools::top {

class Screen {
 public:
  // An error: the terminal on stdin and stdout is none, or can't place its cursor.
  static Result<std::unique_ptr<Screen>> open();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Size size() const;
  void show(const std::vector<Line>& lines);

  // The keys of model.h, and these.
  enum : int { kNoKey = -1, kRedraw = -2, kAskedToEnd = -3 };
  // The next key; kNoKey: there was none for so long.
  int key(std::chrono::milliseconds patience);

  // The signal that asked for the end; 0: the terminal went away.
  static int end_signal();

 private:
  Screen();
  void handle(int number, void (*handler)(int));
  void stop();

  bool starts_ = false;  // ncurses knows the terminal
  bool opened_ = false;  // and it can be drawn on
  bool utf8_ = false, colours_ = false;
  sigset_t before_{};  // the mask
  struct Kept {
    int number;
    struct sigaction action;
  };
  std::vector<Kept> kept_;
};

}  // namespace switchyard::tools::top
