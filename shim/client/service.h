// The service thread: does on a thread of ours what must not happen on an application's.
//
// Concept. It sleeps in poll(). The doorbell means: look at the page (slices). A closed socket, or
// two seconds without a heartbeat, mean that the monitor is gone. Then gates that were closed for
// other jobs open, and slices go back to the driver's default. The thread joins anew with a growing
// pause. It never makes a CUDA call. An application thread may be in the driver, locks held, behind
// a gate that this thread has to open.
//
// Threading: start() from any thread; the thread itself belongs to this file.
#pragma once

namespace switchyard::shim::service {

// Starts the thread unless it runs. Cheap when it does.
void start();

// Asks the thread to look at the page now (a group was born). Async-signal-safe, never blocks.
void poke();

}  // namespace switchyard::shim::service
