// Squared norms of gradients, before and after they are summed, for the gradient noise scale.
//
// Concept. Around a collective that may be that of a gradient (switchyard/norms.h) stand two
// kernels of ours on its own stream. Each block writes one number into pinned memory of the host;
// the CPU adds them up later and puts the two norms into the page.
//
//     from's norm | collective | to's norm ........ collect(), on the service thread ──► page
//
// Nobody waits for the GPU: what is not there yet is looked at again. A GPU has a ring of entries.
// When half of them are taken, the next begin() collects, too; when all wait for the GPU, the
// collective is not measured. An operation that NCCL launches only when a group ends gets its
// kernels around the end. Nothing is put into a capture.
//
// The kernels touch the program's memory, so they are put through the gate and swap's admission as
// its own are. They are not counted as its launches. The kernel is loaded, and the memory pinned,
// when a communicator comes to life. Its first collective has just waited for all ranks then, and
// none of its kernels is on the GPU.
//
// Which steps are measured: abi.h, "Norms". Until the monitor's order is proven, a collective of
// another step takes an entry as well, without a kernel around it. So all are told in the order of
// their numbers.
//
// Threading: any thread; begin() and end() take no lock. Calls for one communicator come one after
// the other, as NCCL wants it.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver.h"
#include "shim/nccl/abi.h"
#include "switchyard/abi.h"

namespace switchyard::shim::nccl::norms {

// A collective that may be measured.
struct Sum {
  int slot = -1;  // of the original, if it goes to a twin
  bool scattered = false;
  const void* from = nullptr;
  const void* to = nullptr;
  std::size_t sent = 0, received = 0;  // elements
  ncclDataType_t type = 0;
  ncclRedOp_t op = 0;
  CUstream stream = nullptr;
  std::uint32_t ordinal = 0;  // in a group: its number, from 1
};

// Each so many steps; 0: nothing is measured.
extern std::atomic<std::uint32_t> g_every;
inline bool on() { return g_every.load(std::memory_order_relaxed) != 0; }

// A communicator has come to life in this slot. pre: a context of its GPU is current, or nothing of
// it will be measured.
void born(int slot, int lane);

// Whether it is large enough, and of several ranks.
bool may_be_gradient(const Sum& sum);
// It is not measured, for this reason.
void pass_over(Unmeasured why);

struct Entry;

// One collective, between begin() and end(). `number`: its own in its communicator; a twin and its
// original count together (twins.h).
struct Norm {
  Entry* entry = nullptr;  // null: it is not measured
};
Norm begin(const Sum& sum, std::uint64_t number);
// What NCCL answered: success means that it is in the stream now.
void end(const Norm& norm, const Sum& sum, ncclResult_t answer);

// Puts what the GPU has written into the page. True: there was something, so look again soon.
bool collect();

// A fresh page: why collectives were not measured.
void carry_over(abi::Page& fresh);

// The context has ended (owner: memory/owner.h).
void context_gone(unsigned lane, std::uint64_t owner);

}  // namespace switchyard::shim::nccl::norms
