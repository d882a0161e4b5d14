// The GPU's view of the page's gates.
//
// Concept. The page stands at a fixed address and is replaced there when a new monitor comes. The
// memory that the GPU has registered must stay where it is. So the gates are mapped a second time,
// from the same memfd: the *view*. It is registered with the driver by the first armed launch of a
// thread that has a context, and never unmapped.
//
//     made (join) ──► registered ──► retired (a new monitor's page came)
//          ▲─ withdrawn ─┘ the context that registered it ends
//
// Work that was queued before a new monitor came stands before a retired view's gates. That work
// must neither be lost nor let through. So the service thread makes `closed` there follow the new
// page's until all of the work is done.
//
// A view outlives everything that points to it: they are never freed, and there is room for as many
// as monitors may come and go. Past that only threads are held.
//
// A driver without the call will not have it later either: the gate is refused then. Any other
// error (no memory just now) is tried again, with a growing pause, a few times. Another context may
// fare better, so a refusal ends when a context of that GPU does.
//
// Threading: usable(), withdraw() and context_gone() from any thread. withdraw() may sleep for a
// second, so it comes before any lock. make() under the connection's lock; follow() from the
// service thread alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver.h"
#include "switchyard/abi.h"

namespace switchyard::shim::view {

struct View {
  abi::Gate* gates = nullptr;                           // this process's second mapping, all lanes
  std::atomic<CUdeviceptr> device[abi::kMaxGpus] = {};  // the same, for each GPU; 0: not yet
  std::atomic<std::uint32_t> stage{0};
  std::atomic<std::uint32_t> refused_lanes{0};
  std::atomic<std::uint64_t> again_ns[abi::kMaxGpus] = {};  // not to be tried before
  unsigned tries[abi::kMaxGpus] = {};                       // by who is at it alone
  std::atomic<bool> followed{false};
  std::uint32_t seen_done = 0;  // follow(): the sum of all numbers done,
  std::uint64_t moved_ns = 0;   // and since when it stands still at an open gate
  int lane = -1;                // whose context registered it
  std::uint64_t owner = 0;      // and which one (memory/owner.h)

  // Where the GPU finds a word of `gates`; 0: nowhere (any more).
  template <typename Word>
  CUdeviceptr at(unsigned lane_index, const Word& word) const {
    const auto offset = reinterpret_cast<const unsigned char*>(&word) -
                        reinterpret_cast<const unsigned char*>(gates);
    const CUdeviceptr base = device[lane_index].load(std::memory_order_relaxed);
    return base == 0 ? 0 : base + static_cast<CUdeviceptr>(offset);
  }
};

// Makes the view of the page that `fd` is, from now on the one for new work.
void make(int fd);

// The view for new work, whether a GPU sees it yet or not. Null: there is none.
View* current();

// The current view, once the GPU of `lane` sees it; registers it when need be. pre: a context of
// that GPU is current. Null: there is none (yet), or the driver refused it.
View* usable(unsigned lane);

// The driver doesn't take waits or numbers here after all.
void refuse(View& view, unsigned lane, CUresult why);

// The registration belongs to the context that made it, and other contexts' work uses it, too. So
// before that context ends, nothing new is put before the view. The view that was withdrawn, if
// any, is given back when the context has ended, or stays after all.
View* withdraw(unsigned lane, std::uint64_t owner);
void give_back(View& view);

// The context that may have registered it has ended.
void context_gone(unsigned lane, std::uint64_t owner);

// Retired views follow the page. True: there is one that still has work before it. Numbers that
// stay unequal though the gate is open (their context is dead, say) are given up after a while.
bool follow(std::uint64_t now_ns);

}  // namespace switchyard::shim::view
