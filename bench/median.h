// The middle one of several figures.
//
// Threading: a pure function.
#pragma once

#include <algorithm>
#include <vector>

namespace switchyard::bench {

// pre: there is one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace switchyard::bench
