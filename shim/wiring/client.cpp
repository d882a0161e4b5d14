// What the client's neighbours do for it (client/neighbours.h).
#include <string.h>
#include <sys/mman.h>

#include "shim/client/hello.h"
#include "shim/client/neighbours.h"
#include "shim/client/process.h"
#include "shim/gate/hold.h"
#include "shim/gate/numbers.h"
#include "shim/gate/view.h"
#include "shim/memory/account.h"
#include "shim/memory/stays.h"
#include "shim/nccl/communicators.h"
#include "shim/nccl/norms.h"
#include "shim/nvml/table.h"
#include "shim/slices/groups.h"
#include "shim/swap/mover.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/work_guard.h"

namespace switchyard::shim::neighbours {
namespace {

// Puts what we have counted so far into the new page, before any thread sees it.
bool carry_over(int fd, const wire::Hello& hello) {
  void* mapped = ::mmap(nullptr, abi::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return false;
  auto& fresh = *static_cast<abi::Page*>(mapped);
  for (unsigned i = 0; i < hello.lane_count && i < abi::kMaxGpus; ++i) {
    abi::Lane& to = fresh.lanes[i];
    const abi::Lane& from = page().lanes[i];
    copy_word(to.launches, from.launches);
    copy_word(to.graph_launches, from.graph_launches);
    copy_word(to.copies, from.copies);
    copy_word(to.link_bytes, from.link_bytes);
    copy_word(to.device_bytes, from.device_bytes);
    copy_word(to.contexts, from.contexts);
    copy_word(to.compute_groups, from.compute_groups);
    copy_word(to.copy_groups, from.copy_groups);
    copy_word(to.refusals, from.refusals);
    copy_word(to.peak_bytes, from.peak_bytes);
    copy_word(to.slice_calls, from.slice_calls);
    copy_word(to.places, from.places);
    account::carry_over(i, hello.used_bytes[i], to);
    ::memcpy(to.uuid, hello.uuid[i], sizeof(to.uuid));
    to.under_mps.store(known_gpus().under_mps[i], std::memory_order_relaxed);
    to.in_use.store(1, std::memory_order_release);
  }
  carry_pause(page(), fresh);
  swap::residency_page::carry_over(fresh);
  nccl::communicators::carry_over(fresh);
  nccl::norms::carry_over(fresh);
  ::munmap(mapped, abi::kPageBytes);
  return true;
}

}  // namespace

void tell_pause(wire::Hello& hello) {
  const Paused pause = paused();
  hello.paused = pause.paused ? 1 : 0;
  hello.pause_until_ns = pause.until_ns;
}

std::uint32_t list_observed_gpus(std::uint8_t (*uuid)[16]) { return nvml::list_gpus(uuid); }

bool move_to_page(int fd, const wire::Hello& hello) {
  const account::Frozen frozen;
  if (!carry_over(fd, hello) || !map_page(fd)) return false;
  swap::residency_page::moved_to_fresh_page();
  memory::tell_stays();
  nccl::communicators::tell();
  if ((hello.flags & wire::kObserver) == 0) view::make(fd);
  return true;
}

void joined(unsigned gpus) { swap::residency_page::choose_swappable(gpus); }

bool look(std::uint64_t now_ns) {
  swap::mover::start_again();
  const bool follows = view::follow(now_ns);
  const bool drains = swap::admission::overrule(now_ns);
  numbers::give_up_stale(now_ns);
  const bool norms = nccl::norms::collect();
  return follows || drains || norms;
}

void heed_monitor() {
  follow_head();
  groups::apply_wanted();
}

void without_monitor() { open_without_monitor(); }

void monitor_gone() {
  // First the gates: that needs nobody. The slices are the driver's to set, and may take their
  // time.
  open_without_monitor();
  swap::mover::poke();
  groups::restore_default();
}

}  // namespace switchyard::shim::neighbours
