// The per-thread names (_ptsz, _ptds): the same call, with the thread's own default stream.
//
// Each is three instructions that jump to an instantiation of Twin, whose type is the call's own by
// decltype. A twin of an old name that cuda.h doesn't declare has its plain call's type.
#include <type_traits>

#include "context.h"

namespace {

template <auto Call, class Type = decltype(Call)>
struct Twin;

template <auto Call, class... Arguments>
struct Twin<Call, CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... arguments) {
    const fakecuda::PerThread scope;
    return Call(arguments...);
  }
};

}  // namespace

#define FAKE_TWIN(symbol, twin)                                              \
  static_assert(std::is_same_v<decltype(::symbol), decltype(::twin)>);       \
  extern "C" __attribute__((visibility("hidden"), used)) decltype(&::symbol) \
      const fakecuda_body_##twin = &Twin<&::symbol>::call;                   \
  __asm__(".text\n.globl " #twin "\n.type " #twin ", @function\n" #twin      \
          ":\n\tendbr64\n\tjmp *fakecuda_body_" #twin "(%rip)\n.size " #twin ", .-" #twin "\n");

#define CALL(version, plain, symbol)
#define CALL_TWIN(version, plain, symbol, twin) FAKE_TWIN(symbol, twin)
#include "calls.def"
