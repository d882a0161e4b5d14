// Work that takes its time, on a thread that nobody waits for: a page is rendered, a file written.
//
// Concept. One piece of work after the other. Each gets a call on the loop when it has ended. The
// thread is started with the first piece. While it stands still (a disk that does not answer), all
// that follows waits, so callers bound what they add.
//
// Threading: run() and finish() on the loop's thread; `work` on the other one.
#pragma once

#include <functional>
#include <memory>

namespace switchyard::monitor {

class Background {
 public:
  Background();
  ~Background();  // Does not wait: what is under way may go on until the process ends.
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // `then` is called by finish() once `work` has ended. False: no thread can be had.
  bool run(std::function<void()> work, std::function<void()> then);

  // Readable when finish() has something to call.
  int finished() const;
  void finish();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  bool started_ = false;
};

}  // namespace switchyard::monitor
