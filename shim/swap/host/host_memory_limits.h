// Room: how much more memory of the host this process may pin.
//
// Concept. The least of several figures: the machine's available memory (/proc/meminfo), and the
// rest that each cgroup of the process still allows. These are its own cgroup and all above it,
// version 1 or 2. A cgroup's files are its page cache's, too, which the kernel gives up first: what
// is inactive of it counts as free. Of each of them a part stays free (spare()).
//
// The texts are parsed by pure functions; root() is where the files are, "" but for tests.
//
// Threading: any thread; root() is set before others begin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchyard::shim::swap::host_memory_limits {

// The number behind `key` at a line's beginning, as in "MemAvailable:  123 kB" (without the unit)
// or "inactive_file 123". False: there is none.
bool number_of(const char* text, const char* key, std::uint64_t& number);

// "max", "123": what a cgroup allows or uses. UINT64_MAX for what is no number.
std::uint64_t limit_of(const char* text);

// The process's path in /proc/self/cgroup: of "memory" in version 1, of "" in version 2. False: it
// is in none, or the path is longer than `room`.
bool cgroup_path(const char* text, const char* controller, char* path, std::size_t room);

// Cuts the last name off: "/a/b" → "/a" → "". False: it was the root.
bool to_parent(char* path);

// Of `available`, what may be taken: 2 GiB or 5 % of `total`, the larger, stay free.
std::uint64_t spare(std::uint64_t total, std::uint64_t available);

// What a cgroup that uses `used` of `limit` bytes, `inactive` of them page cache, has available.
std::uint64_t available(std::uint64_t limit, std::uint64_t used, std::uint64_t inactive);

const char*& root();

// Now, in bytes. 0 when /proc/meminfo can't be read, or any other file not just now.
std::uint64_t bytes();

}  // namespace switchyard::shim::swap::host_memory_limits
