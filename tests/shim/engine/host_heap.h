// The C library's heap as the code under test sees it: it is counted, and may have nothing left.
//
// Concept. The linker leads malloc, calloc and free of this test program here (--wrap); those of
// shared libraries go where they went.
//
// Threading: any thread; an empty heap is the calling thread's.
#pragma once

#include "shim/no_copy.h"

namespace switchyard::shim::testing {

// While one lives, this thread's calls answer null.
class EmptyHeap : NoCopy {
 public:
  EmptyHeap();
  ~EmptyHeap();
};

// Pieces of memory that are not freed yet, of all threads. Only the difference of two says
// something.
long pieces_in_use();

}  // namespace switchyard::shim::testing
