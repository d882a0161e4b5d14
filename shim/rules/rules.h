// Every rule that a row of calls.def may name.
//
// Threading: see each rule.
#pragma once

#include "shim/memory/rules.h"
#include "shim/rules/context.h"
#include "shim/rules/launch.h"
#include "shim/rules/proc_address.h"
