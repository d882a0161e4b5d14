// Every rule that a row of calls.def may name.
//
// Threading: see each rule.
#pragma once

#include "shim/memory/info.h"
#include "shim/rules/arrays.h"
#include "shim/rules/context.h"
#include "shim/rules/graph_collectives.h"
#include "shim/rules/graph_memory.h"
#include "shim/rules/ipc.h"
#include "shim/rules/launch.h"
#include "shim/rules/linear.h"
#include "shim/rules/plain.h"
#include "shim/rules/proc_address.h"
#include "shim/rules/questions.h"
#include "shim/rules/stream_ordered.h"
#include "shim/rules/vmm.h"
