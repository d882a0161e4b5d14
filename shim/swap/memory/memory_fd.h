// Descriptors of memory that another process made: by which it can be handed on.
//
// Concept. The driver exports no handle that it has imported. So a process that takes memory over
// (handover.h) keeps the descriptor that it came by, as long as it has the memory. An open
// descriptor keeps the memory from being freed. Memory that a process keeps on a GPU that its
// contexts leave (parking.h) has one, too. They are many, and the numbers are the application's. So
// ours are in the upper half of what it may open, or beyond that. The application may close them
// and open files of its own there: those are neither used nor closed (own_fd.h).
//
// A forked child has copies of all, which would keep its parent's memory: it closes them, even if
// it never uses CUDA. So nobody forks while others are about, too, on their way to the monitor or
// from there (NoFork).
//
// Threading: any thread; a number is its keeper's alone.
#pragma once

#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim::swap::memory_fd {

// A copy of `fd`, closed on exec; 0: none can be kept. Never 0 otherwise.
int keep(int fd);
// The same where there is one for each chunk of a GPU. They are beyond what the application may
// open, if its hard limit lets them be; else a part of its own numbers stays free.
int keep_one_of_many(int fd);
// A descriptor of the same file, which is the caller's; -1: the application has closed it.
int copy(int kept);
void close(int kept);
// The memory behind a descriptor, which stays the caller's. On failure `memory` is 0.
CUresult import(int fd, CUmemGenericAllocationHandle& memory);
// The same for one that is kept, unless the application has a file of its own there. No copy is
// made: the application may have no number left for one, and a forked child would have it, too.
CUresult import_kept(int kept, CUmemGenericAllocationHandle& memory);

// Around descriptors of memory that aren't kept: no child shall have copies. pre: no RangesLock
// lives (range_table.h).
class NoFork : NoCopy {
 public:
  NoFork();
  ~NoFork();
};

}  // namespace switchyard::shim::swap::memory_fd
