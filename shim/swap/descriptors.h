// Descriptors of memory that another process made: by which it can be handed on.
//
// Concept. The driver exports no handle that it has imported. So who takes memory over
// (handover.h) keeps the descriptor that it came by, as long as it has the memory: an open one
// keeps the memory from being freed. They are many, and the numbers are the application's: they are
// in the upper half of what it may open, and never more than that.
//
// A forked child has copies of all, which would keep its parent's memory: it closes them.
//
// Threading: any thread; a number is its keeper's alone.
#pragma once

namespace switchyard::shim::swap::descriptors {

// A copy of `fd`, closed on exec; 0: none can be kept. Never 0 otherwise.
int keep(int fd);
void close(int kept);

// In a forked child: the parent's.
void close_all();

}  // namespace switchyard::shim::swap::descriptors
