// A word of a shared page that is written at each look: the other side's caches are left alone
// while nothing changes.
//
// Threading: one writer.
#pragma once

#include <atomic>

namespace switchyard::monitor {

template <typename Word, typename Value>
void store_if_other(Word& word, Value value) {
  if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_relaxed);
}

}  // namespace switchyard::monitor
