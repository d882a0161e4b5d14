// What the environment tells the shim: the kill switch, and the card of the job as text.
//
// Threading: any thread, but for what is said below. Never called on a launch path.
#pragma once

#include <cstddef>

#include "switchyard/card.h"
#include "switchyard/paths.h"

namespace switchyard::shim {

// SWITCHYARD_DISABLE=1: every door passes through, nothing joins.
bool disabled();

// SWITCHYARD_REQUIRE=1: no CUDA instead of unmanaged CUDA.
bool required();

// SWITCHYARD_SWAP_DIGEST=0: swappable memory is copied whenever it leaves, changed or not.
bool swap_digest();

// SWITCHYARD_NEWER_DRIVER=1: memory is swappable although the driver has calls that the library
// does not know.
bool newer_driver_allowed();

// A SWITCHYARD_* whose text is longer than the card holds; no name: there is none.
struct TooLong {
  const char* name = nullptr;
  std::size_t most = 0;  // characters
};
// The knobs from SWITCHYARD_*, empty where unset: the monitor has the defaults. A text that doesn't
// fit is cut, which makes it another one: another job, or no limit. Nobody may join with that.
//
// Only for threads of the program. It may change its environment at any time, and an array of
// variables that grows is freed under a thread of ours.
TooLong read_card(JobCard& card);
// The same, as it was read last. For any thread.
TooLong read_before(JobCard& card);
// Where the monitor is, as the environment said it when the card was read last. For any thread.
SocketWords socket_before();

// Which SWITCHYARD_* ask for something that only a monitor keeps, for a message. False: none does.
bool list_promises(char (&out)[256]);

// Logs once which SWITCHYARD_* variables are none of ours, if there are any: misspelt ones.
void say_unknown_variables();
// The same for a SWITCHYARD_LOG that names no level, or a file that cannot be opened.
void say_wrong_log();

}  // namespace switchyard::shim
