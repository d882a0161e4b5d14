// Rules for NCCL's calls about communicators: how they are made, ended, and asked.
//
// Concept. As rules.h. A communicator comes to life when its call or its group has ended, and may
// get a twin then (twins.h). A call that ends it, or asks for its errors, is made for both.
//
// Threading: any thread.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <new>

#include "shim/clock.h"
#include "shim/nccl/registrations.h"
#include "shim/nccl/twins.h"
#include "shim/thread.h"

namespace switchyard::shim::nccl::rules {

// Whether NCCL took it: a communicator that doesn't block says "in progress".
inline bool taken(ncclResult_t result) {
  return result == kNcclSuccess || result == kNcclInProgress;
}

template <typename Original, typename... Args>
ncclResult_t inside(const Original& original, Args... args) {
  const Inside inside;
  return original(args...);
}

// The GPU that the thread works on; -1: none of ours. NCCL has made its context current by now.
inline int current_gpu() {
  const abi::Lane* lane = current_lane();
  return lane != nullptr ? lane_index(lane) : -1;
}

// A communicator that NCCL has made, or makes when the group ends. It comes to life when the call
// or the outermost group has ended.
void born(ncclComm_t* where, Birth birth);
// Answers what the call or the group then answers.
ncclResult_t settle_births(ncclResult_t result, const Calls& calls);
// The births expected from `first` on will not come.
void forget_births(unsigned first);

// `make` makes one. pre: no call of NCCL is on.
template <typename Original, typename Make>
ncclResult_t make_one(const Original& original, ncclComm_t* where, Birth birth,
                      const ncclConfig_t* config, int parent, Make make) {
  twins::expect(birth, config, parent);
  const ncclResult_t result = make();
  if (parent < 0) birth.lane = current_gpu();
  if (taken(result)) {
    born(where, birth);
  } else {
    twins::refuse(birth);
  }
  return t_nccl.groups == 0 ? settle_births(result, original.calls()) : result;
}

template <typename Original>
ncclResult_t init_rank(const Original& original, ncclComm_t* comm, int ranks, ncclUniqueId id,
                       int rank) {
  const auto make = [&] { return inside(original, comm, ranks, id, rank); };
  if (t_nccl.inside != 0) return make();
  return make_one(original, comm, {id_of(&id, 1), rank, ranks}, nullptr, -1, make);
}

template <typename Original>
ncclResult_t init_rank(const Original& original, ncclComm_t* comm, int ranks, ncclUniqueId id,
                       int rank, ncclConfig_t* config) {
  const auto make = [&] { return inside(original, comm, ranks, id, rank, config); };
  if (t_nccl.inside != 0) return make();
  return make_one(original, comm, {id_of(&id, 1), rank, ranks}, config, -1, make);
}

template <typename Original>
ncclResult_t init_rank_scalable(const Original& original, ncclComm_t* comm, int ranks, int rank,
                                int ids, ncclUniqueId* id, ncclConfig_t* config) {
  const auto make = [&] { return inside(original, comm, ranks, rank, ids, id, config); };
  if (t_nccl.inside != 0) return make();
  return make_one(original, comm, {id_of(id, ids), rank, ranks}, config, -1, make);
}

template <typename Original>
ncclResult_t init_all(const Original& original, ncclComm_t* comms, int devices, const int* device) {
  if (t_nccl.inside != 0) return inside(original, comms, devices, device);
  const std::uint64_t id = own_id();
  const unsigned before = t_nccl.expecting;
  for (int rank = 0; rank < devices; ++rank) {
    Birth birth{id, rank, devices, device != nullptr ? device[rank] : rank};
    twins::expect(birth, nullptr, -1);
    born(&comms[rank], birth);
  }
  const ncclResult_t result = inside(original, comms, devices, device);
  if (!taken(result)) forget_births(before);
  return t_nccl.groups == 0 ? settle_births(result, original.calls()) : result;
}

// It is not watched. The old ranks know their communicator, and the new ones the unique id: they
// have nothing in common from which all could get one id.
template <typename Original>
ncclResult_t grow(const Original& original, ncclComm_t comm, int ranks, const ncclUniqueId* id,
                  int rank, ncclComm_t* grown, ncclConfig_t* config) {
  const auto make = [&] { return inside(original, comm, ranks, id, rank, grown, config); };
  if (t_nccl.inside != 0) return make();
  return make_one(original, grown, Birth{}, config, -1, make);
}

// A child's rank and size are NCCL's to tell, once it is made. One of a parent that is not watched
// is not, either. All ranks of the parent must call, also those that get no child, so each of them
// counts the call.
template <typename Original>
ncclResult_t split(const Original& original, ncclComm_t comm, int color, int key, ncclComm_t* child,
                   ncclConfig_t* config) {
  const auto make = [&] { return inside(original, comm, color, key, child, config); };
  if (t_nccl.inside != 0) return make();
  const int slot = communicators::find(comm);
  const std::uint64_t id =
      with_color(next_child(slot, Maker::kSplit), static_cast<unsigned>(color));
  if (color == kNcclSplitNoColor) return make();
  if (slot < 0) return make_one(original, child, Birth{}, config, -1, make);
  return make_one(original, child, {id, 0, 0, communicators::lane(slot)}, config, slot, make);
}

// The worse of what a communicator and its twin answered.
inline ncclResult_t worse(ncclResult_t one, ncclResult_t other) {
  return one != kNcclSuccess ? one : other;
}

// Does to a communicator and to its twin the same.
template <typename Original, typename... Args>
ncclResult_t both(const Original& original, ncclComm_t comm, Args... args) {
  const ncclComm_t twin = t_nccl.inside == 0 ? twins::of(comm) : nullptr;
  const ncclResult_t result = twin != nullptr ? inside(original, twin, args...) : kNcclSuccess;
  return worse(inside(original, comm, args...), result);
}

// A call on a thread of its own. The last of the two, that thread and the one that waits, ends it.
template <typename Call>
struct Beside {
  enum Stage : std::uint32_t { kRuns, kDone, kLeft };
  Call call;
  ncclResult_t result = kNcclSuccess;
  std::atomic<std::uint32_t> stage{kRuns};

  // Null: there is no memory, or no thread.
  static Beside* begin(Call call) {
    void* const memory = ::malloc(sizeof(Beside));
    if (memory == nullptr) return nullptr;
    auto* const beside = ::new (memory) Beside{call};
    if (start_thread(&Beside::run, beside)) return beside;
    beside->end();
    return nullptr;
  }
  // Waits for the call, so long at most. False: it goes on.
  bool finish(std::uint64_t patience_ns, ncclResult_t& answer) {
    const std::uint64_t until_ns = monotonic_ns() + patience_ns;
    while (stage.load(std::memory_order_acquire) == kRuns && monotonic_ns() < until_ns) {
      sleep_ns(agreement::kLookAgainNs);
    }
    std::uint32_t runs = kRuns;
    if (stage.compare_exchange_strong(runs, kLeft, std::memory_order_acq_rel)) return false;
    answer = result;
    end();
    return true;
  }

 private:
  static void* run(void* self) {
    auto* const beside = static_cast<Beside*>(self);
    beside->result = beside->call();
    if (beside->stage.exchange(kDone, std::memory_order_acq_rel) == kLeft) beside->end();
    return nullptr;
  }
  void end() {
    this->~Beside();
    ::free(this);
  }
};

// The call for a twin goes on without us.
void say_left();

// Ends the work of a communicator and that of its twin at once. NCCL waits for the kernels of the
// one, or frees its memory, and these may stand behind kernels of the other. In a group NCCL waits
// when the group ends, also for communicators that are aborted later in the group. A thread of ours
// has no group, and would wait for that in vain. `twins` may go on when this has returned.
template <typename Twins, typename Own>
ncclResult_t at_once(Twins twins, Own own, std::uint64_t patience_ns = agreement::kPatienceNs) {
  ncclResult_t twins_answer = kNcclSuccess;
  auto* const beside = t_nccl.groups == 0 ? Beside<Twins>::begin(twins) : nullptr;
  if (beside == nullptr) twins_answer = twins();
  const ncclResult_t result = own();
  if (beside != nullptr && !beside->finish(patience_ns, twins_answer)) say_left();
  return worse(result, twins_answer);
}

// Those who are left out don't call. kNcclShrinkAbort: NCCL ends what is on the GPU first. So the
// twin is aborted, for only the original works again then. All who go on call it, so all know.
template <typename Original>
ncclResult_t shrink(const Original& original, ncclComm_t comm, int* excluded, int count,
                    ncclComm_t* child, ncclConfig_t* config, int flags) {
  const auto shrink = [&] { return inside(original, comm, excluded, count, child, config, flags); };
  if (t_nccl.inside != 0) return shrink();
  const ncclComm_t twin = (flags & kNcclShrinkAbort) != 0 ? twins::take(comm) : nullptr;
  const auto make = [&] {
    if (twin == nullptr) return shrink();
    return at_once([=] { return inside(original.calls().abort, twin), kNcclSuccess; }, shrink);
  };
  const int slot = communicators::find(comm);
  const std::uint64_t id = next_child(slot, Maker::kShrink);
  if (slot < 0) return make_one(original, child, Birth{}, config, -1, make);
  return make_one(original, child, {id, 0, 0, communicators::lane(slot)}, config, slot, make);
}

template <typename Original>
ncclResult_t revoke(const Original& original, ncclComm_t comm, int flags) {
  const ncclComm_t twin = t_nccl.inside == 0 ? twins::of(comm) : nullptr;
  if (twin == nullptr) return inside(original, comm, flags);
  return at_once([=] { return inside(original, twin, flags); },
                 [&] { return inside(original, comm, flags); });
}

// A communicator that does not block launches on a thread of its own, until it says that it has.
void launched_later(ncclComm_t comm, ncclResult_t state);

// An error of either is the communicator's.
template <typename Original>
ncclResult_t async_error(const Original& original, ncclComm_t comm, ncclResult_t* error) {
  const ncclResult_t result = inside(original, comm, error);
  if (result == kNcclSuccess && t_nccl.inside == 0) launched_later(comm, *error);
  if (result != kNcclSuccess || *error != kNcclSuccess || t_nccl.inside != 0) return result;
  const ncclComm_t twin = twins::of(comm);
  return twin != nullptr ? inside(original, twin, error) : result;
}

// A buffer or a window. The operations of a twin work without it, if the twin does not take it.
template <typename Original, typename... Flags>
ncclResult_t register_memory(const Original& original, ncclComm_t comm, void* buffer,
                             std::size_t bytes, void** handle, Flags... flags) {
  const ncclComm_t twin = t_nccl.inside == 0 ? twins::of(comm) : nullptr;
  auto* pair = twin != nullptr ? registrations::begin(comm, handle) : nullptr;
  const ncclResult_t result = inside(original, comm, buffer, bytes, handle, flags...);
  if (pair == nullptr) return result;
  if (taken(result)) {
    inside(original, twin, buffer, bytes, registrations::twins_handle(pair), flags...);
  }
  if (t_nccl.groups == 0) registrations::settle(result);
  return result;
}

template <typename Original>
ncclResult_t deregister_memory(const Original& original, ncclComm_t comm, void* handle) {
  const ncclComm_t twin = t_nccl.inside == 0 ? twins::of(comm) : nullptr;
  void* twins = twin != nullptr ? registrations::take(comm, handle) : nullptr;
  if (twins != nullptr) inside(original, twin, twins);
  return inside(original, comm, handle);
}

// First the tables: the handle may be another's as soon as NCCL has freed it.
template <typename Original>
ncclResult_t end(const Original& original, ncclComm_t comm) {
  if (t_nccl.inside != 0) return original(comm);
  const ncclComm_t twin = twins::take(comm);
  communicators::end(comm);
  const ncclResult_t result = twin != nullptr ? inside(original, twin) : kNcclSuccess;
  return worse(inside(original, comm), result);
}

template <typename Original>
ncclResult_t abort(const Original& original, ncclComm_t comm) {
  if (t_nccl.inside != 0) return original(comm);
  const ncclComm_t twin = twins::take(comm);
  communicators::end(comm);
  if (twin == nullptr) return inside(original, comm);
  return at_once([=] { return inside(original, twin); }, [&] { return inside(original, comm); });
}

}  // namespace switchyard::shim::nccl::rules
