// With how many random seeds a law is tried.
//
// SWITCHYARD_TEST_SEEDS=N: N times as many as usual, as `make night` does. Under a sanitizer, which
// looks for other faults and takes several times as long, a third of them.
//
// Threading: any thread.
#pragma once

#include <cstdlib>

namespace switchyard::test_support {

inline unsigned seeds(unsigned usual) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  usual = (usual + 2) / 3;
#endif
  const char* said = std::getenv("SWITCHYARD_TEST_SEEDS");
  const auto times = said != nullptr ? static_cast<unsigned>(std::strtoul(said, nullptr, 10)) : 1;
  return usual * times;
}

}  // namespace switchyard::test_support
