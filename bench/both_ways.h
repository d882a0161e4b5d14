// One call of the driver by two addresses. One is that of dlsym, which is the preload library's
// where there is one. The other is the driver's own. Batches by either take turns in one process,
// so that both meet the same CPU, caches and neighbours. Without the library both are the same
// address.
//
// Threading: one thread.
#pragma once

#include "driver.h"

namespace switchyard::bench {

template <typename Call>
struct BothWays {
  Call own;
  Call found;
  Call by(bool library) const { return library ? found : own; }
};

// Ends the program when the driver's symbol table lacks it.
template <typename Call>
BothWays<Call> both_ways(Call found, const char* symbol) {
  const auto own = reinterpret_cast<Call>(own_symbol(symbol));
  if (own == nullptr) {
    std::fprintf(stderr, "bench: the driver's symbol table has no %s\n", symbol);
    std::exit(1);
  }
  return {own, found};
}
#define BENCH_BOTH_WAYS(name) both_ways(driver().name, SWITCHYARD_CUDA_SYMBOL(name))

}  // namespace switchyard::bench
