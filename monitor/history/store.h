// The history's thread: writes rows to the disk, and asks there what people want to know.
//
// Concept. The loop adds rows and goes on. They are added up until the thread takes them, once in
// three seconds. So a disk that stalls or is full costs memory for new keys only. Beyond a bound
// new keys are lost: they are counted, and the log says it once. Questions are answered by finish()
// on the loop, whose descriptor becomes readable then.
//
// At the loop's end, the thread has a second to write the rows that are left.
//
// Threading: everything on the loop's thread. The backend has a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "monitor/history/backend.h"

namespace switchyard::monitor::history {

class Store {
 public:
  // On the store's thread. Null: there is no history, because of `why`.
  using Open = std::function<std::unique_ptr<Backend>(std::string& why)>;
  struct Bounds {
    std::size_t rows = 20000;                      // that wait for the disk
    std::size_t questions = 32;                    // that wait for an answer
    std::size_t questions_of_user = 4;             // of one user, of these
    Time pause = std::chrono::milliseconds(3000);  // between two writes
  };

  Store(Open open, Bounds bounds);
  explicit Store(Open open) : Store(std::move(open), Bounds()) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void add(Rows rows);
  // False: too many wait, or there is no history; `why` says so. Else `then` has the listing.
  bool ask(Query query, std::function<void(std::string)> then, std::string& why);
  // Rows that never reached the disk.
  std::uint64_t lost() const;

  // Readable when finish() has something to do.
  int finished() const;
  // Answers, and writes what the thread has to say into the log.
  void finish();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace switchyard::monitor::history
