// The driver's checkpoint of a process: all that it has on the GPUs leaves them, and comes back.
//
// Concept. As measured: while the process is checkpointed nothing of it is on any GPU, its channel
// groups included; its addresses and handles stay. A restore may move it: `gpuPairs` then names
// every GPU of the machine. Any process may ask for it (CheckpointRequest). A thread of the driver
// in the process itself does it, so the kernel sees none of the application's threads in it.
//
//   running ── lock ──► locked ── checkpoint ──► checkpointed
//      ▲                │    ▲                        │
//      └──── unlock ────┘    └─────── restore ────────┘
//
// A call while it is checkpointed ends the process, as measured of some. A call while it is only
// locked sleeps before it begins, as measured of those that take a lock of the driver's.
//
// Threading: any thread.
#pragma once

namespace fakecuda::checkpoint {

// Where each call begins (FAKE_NEED_DRIVER).
void wait_until_running();
// The driver's thread, once the process has a driver.
void start();

}  // namespace fakecuda::checkpoint
