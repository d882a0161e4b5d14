// A file that others read at any moment: it appears as a whole, with its folder.
//
// Threading: call it from the only thread.
#pragma once

#include <optional>
#include <string>

#include "tools/base/result.h"

namespace switchyard::tools {

// With mode 0644. What failed, or nothing.
std::optional<Error> write_file(const std::string& path, const std::string& text);

}  // namespace switchyard::tools
