// libcuda, opened when a program runs: a list of its functions becomes a struct of typed pointers.
//
// Concept. A program lists what it calls, once:
//
//   #define MY_CALLS(CALL) CALL(cuInit) CALL(cuMemAlloc)
//   SWITCHYARD_CUDA_FUNCTIONS(Driver, MY_CALLS);
//
// `Driver` has a pointer for each name, with the type of its declaration in cuda.h. fill() looks
// them up and returns the first missing symbol. A name may be a macro of cuda.h: cuMemAlloc is the
// symbol cuMemAlloc_v2, and `driver.cuMemAlloc` is the same pointer. Nothing here knows of
// Switchyard, so benches, the demo and the conformance test include it, too.
//
// The preload library has a table of its own (shim/driver.h). Its rows stand in files, because they
// are hooks as well. A function that the driver lacks is no error there. And it declares the old
// versions, which have no macros.
//
// Threading: fill a struct before another thread reads it. There is no other state.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <type_traits>

namespace switchyard::cuda {

// The driver by its soname, as frameworks open it. Null: dlerror() says why.
inline void* open_library(int visibility = RTLD_LOCAL) {
  return ::dlopen("libcuda.so.1", RTLD_NOW | visibility);
}

// How fill() looks a function up in a library that dlopen gave; null finds nothing.
inline auto in_library(void* library) {
  return [library](const char* symbol, const char*) {
    return library != nullptr ? ::dlsym(library, symbol) : nullptr;
  };
}

}  // namespace switchyard::cuda

// The exported symbol that cuda.h means by a name.
#define SWITCHYARD_CUDA_TEXT_(name) #name
#define SWITCHYARD_CUDA_SYMBOL(name) SWITCHYARD_CUDA_TEXT_(name)

#define SWITCHYARD_CUDA_POINTER_(name) decltype(&::name) name = nullptr;
// In a struct the pointer hides the function, so its type is asked of the pointer.
#define SWITCHYARD_CUDA_FIND_(name)                                             \
  this->name = reinterpret_cast<std::remove_reference_t<decltype(this->name)>>( \
      find(SWITCHYARD_CUDA_SYMBOL(name), #name));                               \
  if (this->name == nullptr) return SWITCHYARD_CUDA_SYMBOL(name);

// `find(symbol, name)` gives the address or null; `name` is the one in the list, which
// cuGetProcAddress wants. fill() returns null when it found all of them.
#define SWITCHYARD_CUDA_FUNCTIONS(Type, LIST) \
  struct Type {                               \
    LIST(SWITCHYARD_CUDA_POINTER_)            \
    template <typename Find>                  \
    const char* fill(const Find& find) {      \
      LIST(SWITCHYARD_CUDA_FIND_)             \
      return nullptr;                         \
    }                                         \
  }
