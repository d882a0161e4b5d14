// The GPUs that the history's file knows, also those that have gone.
//
// Threading: the store's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/history/sqlite.h"

namespace switchyard::monitor::history {

class KnownGpus {
 public:
  struct Gpu {
    std::string uuid, name;
    std::int64_t index = 0;
  };
  // Words of a question: an index, or the beginning of a UUID.
  using Words = std::vector<std::string>;

  // False: the file could not be read.
  bool read(const Sqlite& file, std::int64_t& steps);
  const Gpu& at(std::int64_t key) { return gpus_[key]; }
  // The first word that names none of them.
  std::optional<std::string> unknown(const Words& words) const;
  // A condition for rows of `b`: "AND +b.gpu IN (1, 2) "; empty where no word is.
  std::string condition(const Words& words) const;

 private:
  std::map<std::int64_t, Gpu> gpus_;  // by key of the file
};

}  // namespace switchyard::monitor::history
