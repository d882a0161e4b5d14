// Whether the processes of jobs can act.
//
// Concept. A process that is stopped, frozen or dumps core does nothing that it is told, so nobody
// waits for it, and it is named. /proc is asked about processes that hold something up. They are
// told to leave or to come, belong to a cut, or get nowhere with work or with collectives. Of these
// at most kMostLooks are looked at in a tick, those first that were not for longest. When a person
// asks for something of a job, its processes are looked at at once.
//
// A thread that a debugger follows stops for microseconds at each of its calls, and one waits for a
// disk now and then. So these two count only once they last.
//
// Threading: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "monitor/platform/standstill.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor {

class Registry;
struct Client;
struct Job;

namespace standing {

inline constexpr std::size_t kMostLooks = 64;
// A process that was looked at is not looked at again before.
inline constexpr Time kLookEvery = std::chrono::milliseconds(100);
// The same for a listing, which shows also those that hold nothing up.
inline constexpr Time kListEvery = std::chrono::seconds(1);
inline constexpr Time kTracedFor = std::chrono::milliseconds(300);
inline constexpr Time kDiskFor = std::chrono::seconds(2);

// The knowledge about a process.
struct Known {
  Standstill why = Standstill::kNone;
  Standstill seen = Standstill::kNone;  // at the last look,
  Time since{0};                        // and since when
  Time looked_at{0};
  std::uint64_t progress = 0;  // of its GPU and of its collectives, as of the last tick
  bool moved = true;           // since the one before
};
// What /proc says now.
void note(Known& known, Standstill seen, Time now);

void tick(Registry& registry, Time now);
void look(Registry& registry, Job& job, Time now);
// Those of all jobs, as a listing shows them. True: one is another than before.
bool look_at_all(Registry& registry, Time now);

// A process of the job that can't act; null: each of them can.
const Client* who_stands(const Registry& registry, const Job& job);
// "its process 4711 is stopped by a signal"; empty: all of them can act.
std::string why_it_stands(const Registry& registry, const Job& job);

}  // namespace standing
}  // namespace switchyard::monitor
