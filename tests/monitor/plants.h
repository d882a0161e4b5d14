// What a test makes up in a job or a client, where it can't bring it about.
//
// Threading: none.
#pragma once

#include "monitor/core/written_by.h"

namespace switchyard::monitor::test {

struct Plants {
  template <typename T, typename Owner>
  static T& in(WrittenBy<T, Owner>& value) {
    return value.write();
  }
};

}  // namespace switchyard::monitor::test
