// Rules for memory: charge before the driver is called, roll back if it refuses, free.
//
// Threading: any thread.
#pragma once

#include "shim/driver.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
