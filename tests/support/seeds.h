// With how many random seeds a law is tried.
//
// SWITCHYARD_TEST_SEEDS=N: N times as many as usual, as `make night` does. Under a sanitizer, which
// looks for other faults and takes several times as long, a tenth of them. A law's scene that takes
// longer than all its others is played once. Under a sanitizer it is left to SWITCHYARD_TEST_SEEDS.
//
// Threading: any thread.
#pragma once

#include <cstdlib>

namespace switchyard::test_support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

inline unsigned seeds(unsigned usual) {
  if (kSanitized) usual = (usual + 9) / 10;
  const char* said = std::getenv("SWITCHYARD_TEST_SEEDS");
  const auto times = said != nullptr ? static_cast<unsigned>(std::strtoul(said, nullptr, 10)) : 1;
  return usual * times;
}

inline unsigned seeds_of_longest() {
  return kSanitized && std::getenv("SWITCHYARD_TEST_SEEDS") == nullptr ? 0 : 1;
}

}  // namespace switchyard::test_support
