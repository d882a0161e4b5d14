#include "shim/slices/groups.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/service.h"
#include "shim/clock.h"
#include "shim/island/server.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "shim/slices/driver_ioctl.h"
#include "shim/slices/rm.h"

namespace switchyard::shim::groups {
namespace {

constexpr int kMaxGroups = 256;
constexpr int kNoDevice = -1;
constexpr int kIslandDevice = 0;  // the only one of an island's server

struct Group {
  bool live;
  int fd;
  dev_t file_device;  // what fd was when the group was born: a number may be reused
  ino_t file_inode;
  std::uint32_t client;
  std::uint32_t parent;
  std::uint32_t object;
  bool compute;
  int device;                   // CUDA ordinal = lane; kNoDevice when unknown
  std::uint32_t in_force;       // microseconds
  std::uint32_t set_by_driver;  // how often libcuda set a slice itself
};

struct State {
  Group groups[kMaxGroups] = {};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int coming_back = kNoDevice;
  std::atomic<bool> old_driver{false};
};
constinit State g_state;
constinit thread_local int t_making = kNoDevice;

// Not fstat(): its symbol is younger than the glibc that we promise to load on.
bool identify(int fd, Group& group) {
  struct stat info {};
  if (::syscall(SYS_fstat, fd, &info) != 0) return false;
  group.file_device = info.st_dev;
  group.file_inode = info.st_ino;
  return true;
}

bool same_file(const Group& group) {
  Group now{};
  return identify(group.fd, now) && now.file_device == group.file_device &&
         now.file_inode == group.file_inode;
}

int device_of(std::uint32_t client, std::uint32_t parent) {
  if (t_making != kNoDevice) return t_making;
  if (g_state.coming_back != kNoDevice) return g_state.coming_back;
  if (island::serves()) return kIslandDevice;
  for (const Group& group : g_state.groups) {
    if (group.live && group.client == client && group.parent == parent) return group.device;
  }
  return kNoDevice;
}

// Tells the page how many groups a lane has.
void publish_counts() {
  std::uint32_t compute[abi::kMaxGpus] = {};
  std::uint32_t copy[abi::kMaxGpus] = {};
  for (const Group& group : g_state.groups) {
    if (!group.live || group.device < 0 || group.device >= static_cast<int>(abi::kMaxGpus))
      continue;
    ++(group.compute ? compute : copy)[group.device];
  }
  for (unsigned i = 0; i < abi::kMaxGpus; ++i) {
    page().lanes[i].compute_groups.store(compute[i], std::memory_order_relaxed);
    page().lanes[i].copy_groups.store(copy[i], std::memory_order_relaxed);
  }
}

void born(int fd, const rm::AllocHead& head) {
  rm::GroupParams params{};
  if (head.params == 0) return;
  std::memcpy(&params, reinterpret_cast<const void*>(head.params), sizeof(params));
  const Locked locked(g_state.lock);
  for (Group& group : g_state.groups) {
    if (group.live) continue;
    group = Group{};
    if (!identify(fd, group)) return;
    group.fd = fd;
    group.client = head.root;
    group.parent = head.parent;
    group.object = head.object;
    group.compute = params.engine_type == rm::kEngineCompute;
    group.device = device_of(head.root, head.parent);
    group.in_force = abi::kDefaultSliceUs;
    group.live = true;
    break;
  }
  publish_counts();
}

// An object's end is also the end of its children.
void freed(const rm::Free& request) {
  bool changed = false;
  const Locked locked(g_state.lock);
  for (Group& group : g_state.groups) {
    if (!group.live || group.client != request.root) continue;
    if (request.object == group.object || request.object == group.parent ||
        request.object == group.client) {
      group.live = false;
      changed = true;
    }
  }
  if (changed) publish_counts();
}

// libcuda sets a slice itself at birth; remember it, so that an equal wish isn't sent again. False
// when the group is not one that we know.
bool sliced(const rm::Control& control) {
  bool ours = false;
  std::uint64_t microseconds = 0;
  std::memcpy(&microseconds, reinterpret_cast<const void*>(control.params), sizeof(microseconds));
  const Locked locked(g_state.lock);
  for (Group& group : g_state.groups) {
    if (group.live && group.client == control.client && group.object == control.object) {
      group.in_force = static_cast<std::uint32_t>(microseconds);
      ++group.set_by_driver;
      ours = true;
    }
  }
  return ours;
}

// One round trip to the driver's firmware, about 0.3 ms. Returns RM's status, or -errno.
int set_slice(const Group& group, std::uint32_t microseconds) {
  std::uint64_t value = microseconds;
  rm::Control control{};
  control.client = group.client;
  control.object = group.object;
  control.cmd = rm::kCmdSetTimeslice;
  control.params = reinterpret_cast<std::uint64_t>(&value);
  control.params_size = sizeof(value);
  if (rm::driver_ioctl(group.fd, rm::kControlRequest, &control) != 0) return -errno;
  return static_cast<int>(control.status);
}

struct Wish {
  std::uint32_t compute_us;
  std::uint32_t copy_us;
};

std::uint32_t or_default(std::uint32_t microseconds) {
  return microseconds == 0 ? abi::kDefaultSliceUs : microseconds;
}

// Such lines of all processes tell what was in force when. The old slice ended and the new one
// began between the two times, which are CLOCK_MONOTONIC's.
void log_accepted(const Group& group, std::uint32_t us, const abi::Lane& lane,
                  std::uint64_t began_ns) {
  if (!log_enabled(Level::kDebug)) return;
  const std::uint64_t ended_ns = monotonic_ns();
  char uuid[2 * sizeof(lane.uuid) + 1] = {};
  for (std::size_t i = 0; i < sizeof(lane.uuid); ++i) {
    ::snprintf(uuid + 2 * i, 3, "%02x", lane.uuid[i]);
  }
  log_line(Level::kDebug,
           "slice: %u us on %s group %08x of GPU %d: accepted, was %u us, uuid %s, %llu to %llu ns",
           us, group.compute ? "compute" : "copy", group.object, group.device, group.in_force, uuid,
           static_cast<unsigned long long>(began_ns), static_cast<unsigned long long>(ended_ns));
}

// A lane's groups, copied: no call of the driver is made under the lock.
struct OfLane {
  Group groups[kMaxGroups];
  int count = 0;
  int compute = 0;
};

void copy_groups(int device, OfLane& out) {
  const Locked locked(g_state.lock);
  for (const Group& group : g_state.groups) {
    if (!group.live || group.device != device) continue;
    out.groups[out.count++] = group;
    if (group.compute) ++out.compute;
  }
}

void note_in_force(const Group& group, std::uint32_t microseconds) {
  const Locked locked(g_state.lock);
  for (Group& live : g_state.groups) {
    // Where libcuda set its own meanwhile, nobody knows which came last: ask for ours again.
    if (live.live && live.client == group.client && live.object == group.object &&
        live.set_by_driver == group.set_by_driver) {
      live.in_force = microseconds;
    }
  }
}

// False: the driver refused.
bool give_slice(Group& group, std::uint32_t microseconds, abi::Lane& lane) {
  const std::uint64_t began_ns = monotonic_ns();
  const int error = same_file(group) ? set_slice(group, microseconds) : -EBADF;
  if (error != 0) {
    lane.slice_error.store(static_cast<std::uint32_t>(error), std::memory_order_relaxed);
    log_line(Level::kWarn, "slice: %u us on group %08x of GPU %d: refused with %d", microseconds,
             group.object, group.device, error);
    return false;
  }
  log_accepted(group, microseconds, lane, began_ns);  // before anybody is told
  lane.slice_calls.fetch_add(1, std::memory_order_relaxed);
  note_in_force(group, microseconds);
  group.in_force = microseconds;
  return true;
}

// Gives the groups of one lane what is wished, longest first, and says what is in force.
void apply_to_lane(int device, Wish wish, std::uint32_t seq) {
  abi::Lane& lane = page().lanes[device];
  OfLane mine;
  copy_groups(device, mine);
  // Two compute groups of our own would be two short slices on one GPU.
  if (mine.compute > 1 && wish.compute_us < abi::kShortBelowUs) {
    wish = {abi::kDefaultSliceUs, abi::kDefaultSliceUs};
  }
  std::uint32_t status = mine.count == 0 ? abi::kSliceNoGroup : abi::kSliceAccepted;
  for (int pass = 0; pass < 2; ++pass) {  // 0: raise, 1: lower
    for (int i = 0; i < mine.count; ++i) {
      Group& group = mine.groups[i];
      const std::uint32_t target = group.compute ? wish.compute_us : wish.copy_us;
      if (group.in_force == target || (target > group.in_force) != (pass == 0)) continue;
      if (!give_slice(group, target, lane)) status = abi::kSliceRefused;
    }
  }
  if (status != abi::kSliceRefused) {
    lane.compute_slice_applied_us.store(wish.compute_us, std::memory_order_relaxed);
    lane.copy_slice_applied_us.store(wish.copy_us, std::memory_order_relaxed);
  }
  lane.slice_status.store(status, std::memory_order_relaxed);
  lane.slice_applied_seq.store(seq, std::memory_order_release);
}

}  // namespace

Making::Making(int device) : before_(t_making) { t_making = device; }
Making::~Making() { t_making = before_; }

// The layout of drivers before 535. Their NVOS21 is as long as ours and has its status elsewhere.
void see_old_driver() {
  if (g_state.old_driver.exchange(true, std::memory_order_relaxed)) return;
  log_line(Level::kInfo, "slice: the driver is older than 535: gates replace time slices");
}

void observe(int fd, unsigned long request, const void* argument, int result) {
  if (((request >> 8) & 0xff) != rm::kIoctlType || result != 0 || argument == nullptr) return;
  const unsigned nr = request & 0xff;
  const unsigned bytes = (request >> 16) & 0x3fff;
  const auto* raw = static_cast<const unsigned char*>(argument);
  if (nr == rm::kAllocNr && bytes == rm::kAllocBytesOld) {
    see_old_driver();
  } else if (nr == rm::kAllocNr && (bytes == rm::kAllocBytes || bytes == rm::kAllocBytesShort)) {
    if (g_state.old_driver.load(std::memory_order_relaxed)) return;
    rm::AllocHead head{};
    std::uint32_t status = 0;
    std::memcpy(&head, raw, sizeof(head));
    std::memcpy(&status, raw + (bytes == rm::kAllocBytes ? 40 : 28), sizeof(status));
    if (head.object_class != rm::kClassChannelGroup || status != rm::kStatusOk) return;
    if (island::serves()) island::group_made();  // first: a process that begins forgets groups
    born(fd, head);
    // The monitor may have another slice in mind than the one it was born with.
    service::poke();
    wake_monitor();
  } else if (nr == rm::kControlNr && bytes == sizeof(rm::Control)) {
    rm::Control control{};
    std::memcpy(&control, raw, sizeof(control));
    if (control.cmd != rm::kCmdSetTimeslice || control.status != rm::kStatusOk) return;
    // libcuda may set its own slice after ours already stood: look again.
    if (sliced(control)) service::poke();
  } else if (nr == rm::kFreeNr && bytes == sizeof(rm::Free)) {
    rm::Free request_free{};
    std::memcpy(&request_free, raw, sizeof(request_free));
    if (request_free.status == rm::kStatusOk) freed(request_free);
  }
}

void apply_wanted() {
  bool changed = false;
  for (unsigned i = 0; i < abi::kMaxGpus; ++i) {
    abi::Lane& lane = page().lanes[i];
    if (lane.in_use.load(std::memory_order_acquire) == 0) continue;
    const std::uint32_t seq = lane.slice_seq.load(std::memory_order_acquire);
    if (seq == 0) continue;  // nothing was ever wanted
    changed = changed || lane.slice_applied_seq.load(std::memory_order_relaxed) != seq;
    apply_to_lane(static_cast<int>(i),
                  {or_default(lane.compute_slice_us.load(std::memory_order_relaxed)),
                   or_default(lane.copy_slice_us.load(std::memory_order_relaxed))},
                  seq);
  }
  // The other clients' slices depend on it, so the monitor need not look for the answer.
  if (changed) wake_monitor();
}

void restore_default() {
  for (unsigned i = 0; i < abi::kMaxGpus; ++i) {
    abi::Lane& lane = page().lanes[i];
    if (lane.slice_seq.load(std::memory_order_relaxed) == 0) continue;
    apply_to_lane(static_cast<int>(i), {abi::kDefaultSliceUs, abi::kDefaultSliceUs},
                  lane.slice_applied_seq.load(std::memory_order_relaxed));
  }
}

void lose_all() {
  const Locked locked(g_state.lock);
  for (Group& group : g_state.groups) group.live = false;
  publish_counts();
}

void come_back(int device) {
  const Locked locked(g_state.lock);
  g_state.coming_back = device;
}

void are_back() { come_back(kNoDevice); }

// The lock may have been held by a thread that does not exist here.
void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::groups
