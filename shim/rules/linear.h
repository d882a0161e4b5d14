// Rules for memory by address: cuMemAlloc, Pitch, Managed, and cuMemFree.
//
// Concept. Charge, call, note; roll back if the driver refuses. A free takes the note out first
// (see ledger.h). Memory that we never noted (imported, opened from another process, allocated
// before a fork) is charged to its maker. The driver alone answers for it.
//
// In a swappable process large plain allocations are made by swap/calls/allocate.h instead of the
// driver; they are charged and noted like any other.
//
// Threading: any thread.
#pragma once

#include "shim/client/process.h"
#include "shim/gate/gate.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
#include "shim/memory/owner.h"
#include "shim/memory/pools.h"
#include "shim/rules/refused.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/calls/pooled.h"
#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::rules {

// Notes `bytes` that were reserved on `lane`; without memory for the note they stay uncharged.
inline void note_owned(abi::Lane* lane, ledger::NoteKind kind, std::uint64_t key,
                       std::uint64_t bytes, Stays why = Stays::kLeaves) {
  if (lane == nullptr) return;
  if (!ledger::note(kind, key,
                    {.lane = lane_index(lane),
                     .bytes = bytes,
                     .owner = memory::current_owner(),
                     .why = why})) {
    account::release(lane, bytes);
  }
}

// Why linear memory that was asked for so stays, in a swappable process. Only managed memory has
// flags.
template <typename... Flags>
Stays why_linear_stays(std::uint64_t asked, Flags...) {
  if (sizeof...(Flags) != 0) return Stays::kManaged;
  return asked < swap::kSmallestChunk ? Stays::kSmall : Stays::kLeaves;
}

// What makes the memory: plain memory of the newer width may be swappable.
template <typename Original, typename Pointer, typename Size, typename... Flags>
CUresult make_linear(Original original, Pointer* address, Size size, Flags... flags) {
  if constexpr (sizeof...(Flags) == 0 && sizeof(Pointer) == sizeof(CUdeviceptr)) {
    if (swap::takes(size)) {
      const CUresult forbidden = forbidden_by_a_capture();
      return forbidden == CUDA_SUCCESS ? swap::allocate(address, size) : forbidden;
    }
  }
  return swap::pooled::with_room([&] { return original(address, size, flags...); });
}

// cuMemAlloc and cuMemAllocManaged, of either width: (address, size, flags...).
template <typename Original, typename Pointer, typename Size, typename... Flags>
CUresult allocate(Original original, Pointer* address, Size size, Flags... flags) {
  abi::Lane* lane = current_lane();
  const std::uint64_t bytes = account::rounded(size);
  if (account::reserve(lane, bytes, pools::reclaim) != CUDA_SUCCESS) {
    const bool may_be_wrong = address == nullptr || sizeof...(Flags) != 0 || capture_may_forbid();
    Pointer least = 0;
    return refused_unless_wrong(
        may_be_wrong,
        [&] { return original(address != nullptr ? &least : nullptr, Size{1}, flags...); },
        [&] { driver().cuMemFree_v2(least); });
  }
  const CUresult result = make_linear(original, address, size, flags...);
  if (result != CUDA_SUCCESS) {
    account::release(lane, bytes);
  } else {
    note_owned(lane, ledger::NoteKind::kPointer, *address, bytes, why_linear_stays(size, flags...));
  }
  return result;
}

// The driver aligns rows to the texture pitch, 512 bytes on every GPU so far.
inline constexpr std::uint64_t kRow = 512;

// Whether the driver can't refuse it for its arguments.
template <typename Pointer, typename Size>
bool is_sound_pitch(const Pointer* address, const Size* pitch, Size width, unsigned element) {
  return address != nullptr && pitch != nullptr && width != 0 &&
         (element == 4 || element == 8 || element == 16);
}

// As above. The driver itself refuses arguments that make no sense.
template <typename Original, typename Pointer, typename Size>
CUresult make_pitched(Original original, Pointer* address, Size* pitch, Size width, Size height,
                      unsigned element, std::uint64_t bytes) {
  if constexpr (sizeof(Pointer) == sizeof(CUdeviceptr)) {
    if (is_sound_pitch(address, pitch, width, element) && swap::takes(bytes)) {
      const CUresult forbidden = forbidden_by_a_capture();
      if (forbidden != CUDA_SUCCESS) return forbidden;
      const CUresult result = swap::allocate(address, bytes);
      if (result == CUDA_SUCCESS) *pitch = bytes / height;
      return result;
    }
  }
  return original(address, pitch, width, height, element);
}

// The driver chooses the pitch, so the true size is known only afterwards.
template <typename Original, typename Pointer, typename Size>
CUresult allocate_pitch(Original original, Pointer* address, Size* pitch, Size width, Size height,
                        unsigned element) {
  abi::Lane* lane = current_lane();
  std::uint64_t asked = 0;
  if (__builtin_mul_overflow((width + kRow - 1) / kRow * kRow, std::uint64_t{height}, &asked)) {
    asked = UINT64_MAX;
  }
  const std::uint64_t bytes = account::rounded(asked);
  if (account::reserve(lane, bytes, pools::reclaim) != CUDA_SUCCESS) {
    const bool sound = is_sound_pitch(address, pitch, width, element);
    Pointer least = 0;
    Size row = 0;
    return refused_unless_wrong(
        !sound || capture_may_forbid(),
        [&] {
          return original(address != nullptr ? &least : nullptr, pitch != nullptr ? &row : nullptr,
                          width != 0 ? Size{1} : Size{0}, Size{1}, element);
        },
        [&] { driver().cuMemFree_v2(least); });
  }
  const CUresult result = make_pitched(original, address, pitch, width, height, element, asked);
  if (result != CUDA_SUCCESS) {
    account::release(lane, bytes);
    return result;
  }
  const std::uint64_t real = account::rounded(std::uint64_t{*pitch} * height);
  if (real > bytes) account::charge(lane, real - bytes);
  if (real < bytes) account::release(lane, bytes - real);
  note_owned(lane, ledger::NoteKind::kPointer, *address, real, why_linear_stays(asked));
  return result;
}

template <typename Original, typename Pointer>
CUresult release_memory(Original original, Pointer address, swap::Free how = swap::Free::kWaits) {
  const auto free = [&] { return swap::free_any(original, address, how); };
  ledger::Charge charge;
  if (ledger::take(ledger::NoteKind::kPointer, address, charge)) {
    const CUresult result = free();
    if (result != CUDA_SUCCESS) {
      ledger::note(ledger::NoteKind::kPointer, address, charge);
    } else if (!swap::keep_charge(address, charge.bytes)) {
      account::release(lane_of_device(charge.lane), charge.bytes);
    }
    return result;
  }
  return pools::free_pooled(address, free);
}

// cuMemFree waits for the whole context, with its locks held. Not for memory that is away: a job
// that ends gives it back behind a closed gate, too.
template <typename Original, typename Pointer>
CUresult free_memory(Original original, Pointer address) {
  if (swap::on() && swap::context_of(address) != nullptr) {
    const CUresult forbidden = forbidden_by_a_capture();
    if (forbidden != CUDA_SUCCESS) return forbidden;
  }
  const bool away = swap::on() && swap::is_away(address);
  const gate::Waiting waiting(away ? nullptr : gate::attentive_lane(), gate::Waiting::kContext);
  return release_memory(original, address);
}

}  // namespace switchyard::shim::rules
