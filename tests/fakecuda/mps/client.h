// The simulated MPS: a process whose work runs in the channel groups of a server.
//
// Concept. As measured on driver 580. A client's first call asks the control daemon whose socket is
// $CUDA_MPS_PIPE_DIRECTORY/control. The daemon starts one server, nvidia-cuda-mps-server, for its
// own user, and turns other users away (805). The server makes its channel groups at its first
// client, by `ioctl`, like any process of this driver. Clients make none: what they launch runs in
// the server's, at once with what the other clients launched.
//
//   the server ends              its clients' calls fail with 806
//   a client's work faults       all clients of the server have that fault; the server goes on, and
//                                clients that come later work
//   `terminate_client`           that client's calls fail with 810
//
// Without a daemon at that place the process works by itself, as with the driver.
//
// Threading: any thread.
#pragma once

#include "control.h"
#include "driver.h"

namespace fakecuda::mps {

// Becomes a client where a daemon answers. An error: that daemon refuses this process.
CUresult attach(State& state);
// Whether this process is one.
bool attached();
// The server's groups on its GPU, for a context of this process.
void lend_groups(control::Groups& groups);

// What became of the server or of this client: CUDA_SUCCESS while all is well.
CUresult trouble();
// The same. REQUIRES: the state is locked, for the entry of a dead server is cleared.
CUresult trouble_locked();
// Work of this process did that wrong: all clients of the server share it.
void tell_fault(CUresult fault);
// Whether the server of this process is there still. It is looked for anew.
bool server_lives();

}  // namespace fakecuda::mps
