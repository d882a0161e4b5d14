// What a process says of itself when it joins a monitor (wire.h: Hello).
//
// Concept. The process's GPUs are asked of the driver once, on the application's thread. When the
// service thread joins anew, an application thread may be in the driver, locks held, behind a gate
// that only the new monitor opens. Asking the driver again could wait for that thread.
//
// Threading: all of it under the connection's lock (client.cpp).
#pragma once

#include <cstdint>

#include "switchyard/wire.h"

namespace switchyard::shim {

struct Gpus {
  std::uint32_t seen;   // by the process
  std::uint32_t count;  // of them with a lane: the first kMaxGpus
  bool nameless;        // not all have a UUID: it is older than CUDA 11.4, or one does not answer
  std::uint8_t uuid[abi::kMaxGpus][16];
  std::uint32_t under_mps[abi::kMaxGpus];
};

// Asks the driver, unless it was asked before.
void ask_for_gpus();
// It has this one, unless it has some already.
void know_gpu(const std::uint8_t (&uuid)[16]);
const Gpus& known_gpus();
void forget_gpus();  // in a forked child, which may see others
// Devices that were one of the two GPUs are the other one from now on, and the page says so.
void exchange_known_gpus(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]);

// `flags`: kObserver, kRejoin or none.
void fill_hello(wire::Hello& hello, std::uint32_t flags);

}  // namespace switchyard::shim
