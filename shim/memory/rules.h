// Rules for memory: charge before the driver is called, roll back if it refuses, free. One room per
// kind of memory.
//
// Threading: any thread.
#pragma once

#include "shim/ipc/rules.h"
#include "shim/memory/arrays.h"
#include "shim/memory/graph_memory.h"
#include "shim/memory/info.h"
#include "shim/memory/linear.h"
#include "shim/memory/stream_ordered.h"
#include "shim/memory/vmm.h"
#include "shim/swap/calls/questions.h"
