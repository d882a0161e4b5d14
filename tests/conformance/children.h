// What this program does when it runs as the second process of a test.
#pragma once

#include <string>

namespace conformance {

// The child's exit status: 0 when all was as it should be, else the number of the failed check.
int child_main(const std::string& name);

}  // namespace conformance
