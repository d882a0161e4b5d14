// A table in the order of its keys. Few items are added or taken, compared with how often they are
// looked for and all are walked.
//
// Concept. An array, searched by halving. An item is plain data with a `key()`, and no two that
// are in it at once have the same.
//
// Threading: whoever has a table guards it.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace switchyard::shim::swap {

template <typename Item>
class FlatMap {
 public:
  std::size_t count() const { return count_; }
  Item& at(std::size_t index) { return items_[index]; }

  // How many items have a key of at most `key`: the last of them may be the one looked for.
  std::size_t up_to(std::uint64_t key) const {
    const auto less = [](std::uint64_t value, const Item& item) { return value < item.key(); };
    return static_cast<std::size_t>(std::upper_bound(items_, items_ + count_, key, less) - items_);
  }

  // False: no memory for it.
  bool add(const Item& item) {
    if (count_ == capacity_ && !grow()) return false;
    Item* place = items_ + up_to(item.key());
    std::copy_backward(place, items_ + count_, items_ + count_ + 1);
    *place = item;
    ++count_;
    return true;
  }

  Item take(std::size_t index) {
    const Item taken = items_[index];
    std::copy(items_ + index + 1, items_ + count_, items_ + index);
    --count_;
    return taken;
  }

  // In a forked child the table may be half changed: it is left where it is.
  void forget() {
    items_ = nullptr;
    count_ = capacity_ = 0;
  }

 private:
  static constexpr std::size_t kFirst = 256;

  bool grow() {
    const std::size_t capacity = capacity_ == 0 ? kFirst : capacity_ * 2;
    void* grown = ::realloc(items_, capacity * sizeof(Item));
    if (grown == nullptr) return false;
    items_ = static_cast<Item*>(grown);
    capacity_ = capacity;
    return true;
  }

  Item* items_ = nullptr;
  std::size_t count_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace switchyard::shim::swap
