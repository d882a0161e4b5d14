// Where memory that leaves may be parked on another GPU, and how it makes way there: the rules
// alone.
//
// Concept. A client's permission to park is a level: so many bytes on one GPU. They count there as
// held from when they are allowed until the last of them has left. It never exceeds the room that
// no job has or was promised, and falls when a job needs that room. Then the client moves the
// excess on to the host.
//
//     state      input                                         → state     allowed
//     Nothing    it leaves, and another GPU has room           → Parks     the least of that room
//                                                                          and what leaves
//     Nothing    it leaves otherwise                           → Nothing   0
//     Parks      all has left                                  → Parks     what is parked
//     Parks      a job lacks the room                          → MakesWay  less by what it lacks
//                                                                          or, where it allocates,
//                                                                          by a whole step
//     MakesWay   no more is there than is allowed              → Parks
//     MakesWay   it says that it can't, or nothing has moved
//                for kMakesWayWithin                           → Stuck     (nobody waits for it)
//     Stuck      some has left                                 → MakesWay
//     any        it is told to come back, or its contexts
//                are to leave                                  → MakesWay  0
//     any        nothing is there, and nothing allowed         → Nothing
//
// A client that dies has nothing there: the driver frees it. A new monitor allows what it finds.
//
// Threading: plain values, pure functions.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "monitor/platform/time.h"

namespace switchyard::monitor::policy {

inline constexpr Time kMakesWayWithin = std::chrono::seconds(10);
// What makes way at least when a job allocates.
inline constexpr std::uint64_t kLeastStep = 4ull << 30;

enum class Parking : std::uint8_t { kNothing, kParks, kMakesWay, kStuck };

// A client's memory of one GPU, as far as it is parked or may be.
struct Parker {
  std::size_t on = 0;         // the GPU
  std::uint64_t allowed = 0;  // bytes
  std::uint64_t there = 0;    // as it said last, and no more than it was ever allowed since then
  std::uint64_t most = 0;     // that it may have there by what it was allowed
  Time moved_at{0};           // while it makes way: when it was told to, or some left last
  std::uint64_t step = 0;     // by how much make_way() lowered it last, and
  Time stepped_at{0};         // when
  bool fails = false;         // it says that it can't

  // The memory of that GPU that no other can have.
  std::uint64_t held() const { return std::max(allowed, there); }
  // The part of that which is there, by its page, which may say anything.
  std::uint64_t bounded(std::uint64_t said_bytes) const { return std::min(said_bytes, most); }
};

Parking state_of(const Parker& parker, Time now);

// It may have so much there from now on. pre: on the GPU where it has some, if it has.
Parker allowed(Parker from, std::size_t on, std::uint64_t bytes, Time now);
// What it says.
Parker reported(Parker from, std::uint64_t there, bool fails, Time now);
// Its first words to a new monitor: `there` is on `on` and no more than it can have.
Parker found(std::size_t on, std::uint64_t there);

// A GPU that the process reaches, and its room that nobody has, was promised or waits for.
struct Spot {
  std::size_t gpu = 0;
  std::uint64_t room = 0;
};
// Where `bytes` are parked: where most room is, as much as fits. Nullopt: nowhere.
std::optional<Spot> choose(std::span<const Spot> spots, std::uint64_t bytes);

// What a job needs of the room that parked memory takes.
struct Need {
  std::uint64_t bytes = 0;   // now
  std::uint64_t beyond = 0;  // that it may take next, as it allocates piece by piece
};

// How much makes way for it in one step, where the step before, a short time ago, was `last`. A job
// that starts allocates more and more. If only what each piece needs made way, each would wait.
std::uint64_t step_for(const Need& need, std::uint64_t last);

// Lowers what `parkers`, all on one GPU, are allowed until `need.bytes` of what they hold are free
// or on their way out. If these are not yet, a whole step leaves. Those who hold most come first,
// so that few are disturbed; those who are stuck are asked, and not counted on. False: they can't
// give `need.bytes`.
bool make_way(std::span<Parker* const> parkers, const Need& need, Time now);

}  // namespace switchyard::monitor::policy
