// The rows of the shim's table as this program sees them: linked directly.
//
// Threading: constants.
#pragma once

namespace reach {

struct Row {
  const char* name;
  const void* linked;  // what the loader bound our reference to
};

// Ends with a null name.
extern const Row kRows[];

}  // namespace reach
