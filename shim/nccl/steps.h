// Steps by communicator: what a group or a graph will add to the counts of those that it names.
//
// Concept. There is room for 1,024 communicators, and a group names a few. So the memory goes by
// what is named: the first ones stand here, and more on the heap, until give_back(). All zero is
// empty.
//
// Threading: the owner's.
#pragma once

#include <stdlib.h>
#include <string.h>

#include <type_traits>

#include "shim/nccl/communicators.h"

namespace switchyard::shim::nccl {

class Steps {
 public:
  // Null: none was added.
  const CountStep* find(int slot) const {
    // The last one first: most operations of a group are of one communicator.
    for (unsigned i = count_; i-- != 0;) {
      if (at(i).slot == slot) return &at(i).step;
    }
    return nullptr;
  }
  // False: there is no memory.
  bool add(int slot, const CountStep& step) {
    auto* there = const_cast<CountStep*>(find(slot));
    if (there == nullptr) {
      if (count_ >= kHere + room_ && !grow()) return false;
      at(count_) = {slot, {}};
      there = &at(count_++).step;
    }
    there->add(step);
    return true;
  }
  bool add(const Steps& more) {
    bool all = true;
    more.for_each([&](int slot, const CountStep& step) { all = add(slot, step) && all; });
    return all;
  }
  template <typename Each>
  void for_each(Each each) const {
    for (unsigned i = 0; i < count_; ++i) each(at(i).slot, at(i).step);
  }
  void clear() { count_ = 0; }
  void give_back() {
    ::free(more_);
    more_ = nullptr;
    room_ = count_ = 0;
  }

 private:
  struct Entry {
    int slot;
    CountStep step;
  };
  static constexpr unsigned kHere = 4;

  Entry& at(unsigned i) { return i < kHere ? here_[i] : more_[i - kHere]; }
  const Entry& at(unsigned i) const { return i < kHere ? here_[i] : more_[i - kHere]; }
  bool grow() {
    const unsigned more = room_ != 0 ? 2 * room_ : 16;
    auto* larger = static_cast<Entry*>(::malloc(more * sizeof(Entry)));
    if (larger == nullptr) return false;
    if (room_ != 0) ::memcpy(static_cast<void*>(larger), more_, room_ * sizeof(Entry));
    ::free(more_);
    more_ = larger;
    room_ = more;
    return true;
  }

  unsigned count_ = 0;
  unsigned room_ = 0;  // on the heap
  Entry* more_ = nullptr;
  Entry here_[kHere] = {};
};
static_assert(std::is_trivially_destructible_v<Steps>);

}  // namespace switchyard::shim::nccl
