// A ring of records of fixed size, with numbers.
//
// Concept. The ring keeps the last records and overwrites the oldest. Records are numbered from 1
// on without gaps. A reader says which number it has seen last. It is given what follows, and how
// many records before that it has lost. Nobody waits for a reader. A record has the time `at_ns`.
//
// Threading: one thread. push() allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

template <typename Record>
class Ring {
  static_assert(std::is_trivial_v<Record>, "a ring of them is not touched before it is used");

 public:
  explicit Ring(std::size_t capacity) : capacity_(capacity), records_(new Record[capacity]) {}

  void push(const Record& record) { records_[++newest_ % capacity_] = record; }

  struct Read {
    std::uint64_t first = 0;  // number of the first record that was read; the others follow it
    std::uint64_t last = 0;   // of the last one: where to go on
    std::uint64_t lost = 0;   // records behind `since` that were overwritten before they were read
  };
  // Appends to `out` at most `most` records that come after number `since`. A number that is yet to
  // come counts as the newest.
  Read read(std::uint64_t since, std::vector<Record>& out, std::size_t most) const {
    since = std::min(since, newest_);
    const std::uint64_t first = std::max(since + 1, oldest());
    const std::uint64_t end = std::min(first + most, newest_ + 1);
    for (std::uint64_t number = first; number < end; ++number) out.push_back(at(number));
    return {first, end - 1, first - since - 1};
  }

  std::uint64_t newest() const { return newest_; }  // its number; 0: there was none
  // Of those that are kept.
  std::uint64_t oldest() const { return newest_ < capacity_ ? 1 : newest_ - capacity_ + 1; }
  std::uint64_t dropped() const { return oldest() - 1; }
  std::size_t capacity() const { return capacity_; }
  // The number of the last record before `time`, in what is kept; 0: there is none.
  std::uint64_t before(Time time) const {
    std::uint64_t number = newest_;
    while (number >= oldest() && at(number).at_ns >= time.count()) --number;
    return number < oldest() ? 0 : number;
  }
  // pre: it is kept.
  const Record& at(std::uint64_t number) const { return records_[number % capacity_]; }

 private:
  std::size_t capacity_;
  std::unique_ptr<Record[]> records_;  // NOLINT(modernize-avoid-c-arrays): untouched until used
  std::uint64_t newest_ = 0;
};

}  // namespace switchyard::monitor
