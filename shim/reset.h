// What a forked child forgets of its parent. Each file that has such state registers its own reset.
//
// Concept. SWITCHYARD_RESET puts a constant into a section of its own, and the linker makes one
// array of them. No constructor here could fill a list. So nobody includes a folder only to reset
// it, and a test resets exactly what it was linked with.
//
// A reset may not allocate, log, take a lock or call another module. A thread that does not exist
// in the child may have held any lock, and any table may be half changed. So the order inside a
// stage means nothing.
//
// A module keeps what may change in one struct, `State`, and one object of it. Where a child
// forgets all of it, SWITCHYARD_RENEW makes the object anew: a new field cannot be missed.
//
// Threading: the child's only thread; only calls that are async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace switchyard::shim {

// In this order.
enum class ResetStage : std::uint64_t {
  kPage,        // first: from here on, nothing that the child does is seen as the parent's
  kConnection,  // then: nothing goes to the monitor in the parent's name
  kState,       // locks and tables
  kStages,
};

// The compilers may align a larger struct by more than its size, which would leave gaps.
struct alignas(16) Reset {
  void (*run)();
  ResetStage stage;
};
static_assert(sizeof(Reset) == 16);

// The bounds of the array. The linker defines them for a section that is named like an identifier.
extern "C" {
[[gnu::visibility("hidden")]] extern const Reset switchyard_resets_begin[] __asm__(
    "__start_switchyard_resets");
[[gnu::visibility("hidden")]] extern const Reset switchyard_resets_end[] __asm__(
    "__stop_switchyard_resets");
}

// How many files have registered.
inline std::size_t count_resets() {
  // In numbers: the compiler takes the bounds for two objects, which are never equal.
  return (reinterpret_cast<std::uintptr_t>(switchyard_resets_end) -
          reinterpret_cast<std::uintptr_t>(switchyard_resets_begin)) /
         sizeof(Reset);
}

// Each of them once, stage by stage.
inline void run_resets() {
  const std::size_t count = count_resets();
  for (std::uint64_t stage = 0; stage < static_cast<std::uint64_t>(ResetStage::kStages); ++stage) {
    for (std::size_t i = 0; i < count; ++i) {
      const Reset& reset = switchyard_resets_begin[i];
      if (static_cast<std::uint64_t>(reset.stage) == stage) reset.run();
    }
  }
}

// A fresh value where the old one stands. Locks and atomics cannot be assigned.
template <typename State>
void renew(State& state) {
  static_assert(std::is_trivially_destructible_v<State>, "what it owns is the parent's, too");
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer does not know that the parent's other threads ended with the fork.
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  ::new (static_cast<void*>(&state)) State();
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
}

template <typename... States>
void renew_all(States&... states) {
  (renew(states), ...);
}

}  // namespace switchyard::shim

// Once in a file, in a namespace inside of switchyard::shim. `function` is a void().
#define SWITCHYARD_RESET(stage, function)                                               \
  namespace {                                                                           \
  __attribute__((section("switchyard_resets"), used)) constinit const Reset g_reset = { \
      function, ResetStage::stage};                                                     \
  }                                                                                     \
  static_assert(true)

// The same for a file that forgets all of its state.
#define SWITCHYARD_RENEW(stage, ...) \
  SWITCHYARD_RESET(stage, [] { ::switchyard::shim::renew_all(__VA_ARGS__); })
