// Dice that fall alike everywhere.
//
// Threading: one thread.
#pragma once

#include <random>

namespace switchyard::monitor::test {

// Raw numbers of the engine: a distribution of the library may differ with its version.
class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  unsigned of(unsigned sides) { return static_cast<unsigned>(random_() % sides); }
  bool once_in(unsigned times) { return of(times) == 0; }

 private:
  std::mt19937 random_;
};

}  // namespace switchyard::monitor::test
