// This process as the server of an island: an MPS server, whose channel groups its clients share.
//
// Concept. nvidia-cuda-mps-server calls none of the names that are hooked, so it would never join.
// `run --co-run` names the island's GPU in SWITCHYARD_ISLAND_GPU. Only the daemon and its server
// have that. Such a process joins at its first channel group. The service thread does it, for the
// thread that makes the group stands in the driver, with its locks held. Its only lane is that GPU.
// From then on it sets slices, as any client does. It has no quota, gates or swap, for nothing of
// it goes through a hook.
//
// Threading: any thread.
#pragma once

namespace switchyard::shim::island {

// Whether this process is one. Reads the environment once.
bool serves();

// It has made a channel group: joins, unless that has begun. Called before anything is noted of the
// group. REQUIRES: serves(); no lock is held.
void group_made();

}  // namespace switchyard::shim::island
