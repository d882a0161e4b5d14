// A file that is replaced as a whole: a reader sees the old text or the new one, never a part.
//
// Threading: any thread. It may wait for the disk.
#pragma once

#include <string>
#include <string_view>

namespace switchyard::monitor {

// Writes PATH.new, mode 0644, and renames it. A file of that name is removed before: it is ours, or
// somebody's link. False: `why` says what failed, and the old file stands.
bool replace_file(const std::string& path, std::string_view text, std::string& why);

}  // namespace switchyard::monitor
