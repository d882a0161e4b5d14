#include "control.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "apart.h"

namespace fakecuda::control {
namespace {

struct Nvos64 {  // NV_ESC_RM_ALLOC
  std::uint32_t root, parent, object, object_class;
  std::uint64_t params, rights;
  std::uint32_t params_size, flags, status, reserved;
};
static_assert(sizeof(Nvos64) == 48);

struct Nvos54 {  // NV_ESC_RM_CONTROL
  std::uint32_t client, object, command, flags;
  std::uint64_t params;
  std::uint32_t params_size, status;
};
static_assert(sizeof(Nvos54) == 32);

struct Nvos00 {  // NV_ESC_RM_FREE
  std::uint32_t root, parent, object, status;
};
static_assert(sizeof(Nvos00) == 16);

struct GroupParams {
  std::uint32_t error_memory[3];
  std::uint32_t engine_type;
  std::uint32_t reserved[4];
};

constexpr unsigned long kAlloc = _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, sizeof(Nvos64));
constexpr unsigned long kAllocShort = _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, 32);
constexpr unsigned long kControl = _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, sizeof(Nvos54));
static_assert(kControl == 0xc020462a);
constexpr unsigned long kFree = _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x29, sizeof(Nvos00));

constexpr std::uint32_t kClientClass = 0x41, kDeviceClass = 0x80, kGroupClass = 0xa06c;
constexpr std::uint32_t kSetTimeslice = 0xa06c0103, kPreempt = 0xa06c0105;
constexpr std::uint32_t kOk = 0, kWrongFile = 0x23, kNoSuchObject = 0x57, kNoRoom = 0x51,
                        kBadArgument = 0x1f;
constexpr std::uint32_t kClient = 0xc1d00001;
constexpr std::uint32_t kEngineTypes[kEngines] = {1, 11, 12, 13};

struct Object {
  std::uint32_t parent = 0, object_class = 0;
  int gpu = -1, entry = -1;
  Engine engine = kCompute;
};

struct Device {  // the control device of this process
  std::mutex lock;
  State* state = nullptr;
  int fd = -1;
  int next_gpu = 0;  // GPU of the next device object: the fake's own way to say which
  std::uint32_t next_object = 0x5c000001;
  std::map<std::uint32_t, Object> objects;
};

Device& device() {
  static Device* only = new Device;  // lives as long as any thread
  return *only;
}

// Only one open file allocated our objects: it holds a lock that another open file would meet.
struct flock mark_of(const Device& control) {
  struct flock mark {};
  mark.l_type = F_WRLCK;
  mark.l_whence = SEEK_SET;
  mark.l_start = (1 << 30) + control.state->self();
  mark.l_len = 1;
  return mark;
}

bool is_state_file(const Device& control, int fd) {
  struct stat ours {
  }, theirs{};
  return control.fd >= 0 && fstat(fd, &theirs) == 0 && fstat(control.fd, &ours) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

bool same_open_file(const Device& control, int fd) {
  struct flock mark = mark_of(control);
  return fcntl(fd, F_OFD_GETLK, &mark) == 0 && mark.l_type == F_UNLCK;
}

std::uint32_t alloc_object(Device& control, Nvos64& call) {
  Object object;
  object.parent = call.parent;
  object.object_class = call.object_class;
  if (call.object_class == kClientClass) {
    control.objects[call.object = kClient] = object;
    return kOk;
  }
  const auto parent = control.objects.find(call.parent);
  if (parent == control.objects.end()) return kNoSuchObject;
  if (call.object_class == kDeviceClass) object.gpu = control.next_gpu;
  if (call.object_class == kGroupClass) {
    if (!call.params) return kBadArgument;
    const auto* params = reinterpret_cast<const GroupParams*>(call.params);
    int engine = -1;
    for (unsigned e = 0; e < kEngines; ++e) {
      if (kEngineTypes[e] == params->engine_type) engine = static_cast<int>(e);
    }
    if (engine < 0) return kBadArgument;
    object.gpu = parent->second.gpu;
    object.engine = static_cast<Engine>(engine);
    object.entry = control.state->add_group(object.gpu, object.engine);
    if (object.entry < 0) return kNoRoom;
  }
  if (!call.object) call.object = control.next_object++;
  control.objects[call.object] = object;
  return kOk;
}

std::uint32_t control_object(Device& control, const Nvos54& call) {
  const auto found = control.objects.find(call.object);
  if (call.client != kClient || found == control.objects.end()) return kNoSuchObject;
  const Object& object = found->second;
  if (object.object_class != kGroupClass) return kBadArgument;
  if (call.command == kPreempt) return kOk;
  if (call.command != kSetTimeslice || call.params_size != 8 || !call.params) return kBadArgument;
  const std::uint64_t us = *reinterpret_cast<const std::uint64_t*>(call.params);
  if (us == 0 || us > 10'000'000) return kBadArgument;
  control.state->gpu(object.gpu).engines[object.engine].groups[object.entry].slice_us =
      static_cast<std::uint32_t>(us);
  return kOk;
}

std::uint32_t free_object(Device& control, const Nvos00& call) {
  const auto found = control.objects.find(call.object);
  if (found == control.objects.end()) return kNoSuchObject;
  const Object object = found->second;
  control.objects.erase(found);
  if (object.object_class == kGroupClass) {
    control.state->remove_group(object.gpu, object.engine, object.entry);
  }
  return kOk;
}

// As libcuda does: through libc's ioctl, or through whoever stands before it. libc doesn't know our
// file and says ENOTTY; then nobody has carried it to us, and we answer ourselves.
void call_kernel(int fd, unsigned long request, void* argument) {
  if (ioctl(fd, request, argument) == 0) return;
  int result = 0;
  answer(fd, request, argument, &result);
}

std::uint32_t alloc(Device& control, std::uint32_t parent, std::uint32_t object_class, void* params,
                    std::uint32_t params_size) {
  Nvos64 call{};
  call.root = object_class == kClientClass ? 0 : kClient;
  call.parent = parent;
  call.object_class = object_class;
  call.params = reinterpret_cast<std::uint64_t>(params);
  call.params_size = params_size;
  if (object_class != kClientClass) {
    std::lock_guard guard(control.lock);
    call.object = control.next_object++;
  }
  call_kernel(control.fd, kAlloc, &call);
  return call.status == kOk ? call.object : 0;
}

bool open_device(Device& control, State& state) {
  std::lock_guard guard(control.lock);
  if (control.fd >= 0) return true;
  control.state = &state;
  control.fd = apart(open(state.path(), O_RDWR | O_CLOEXEC));
  if (control.fd < 0) return false;
  struct flock mark = mark_of(control);
  // The former owner of this number has given it back, and may still be about to close its file.
  constexpr int kTries = 2000;
  for (int i = 0; i < kTries; ++i) {
    if (fcntl(control.fd, F_OFD_SETLK, &mark) == 0) return true;
    usleep(1000);
  }
  return false;
}

}  // namespace

bool open_groups(State& state, int gpu, Groups& groups) {
  static std::mutex one_at_a_time;
  std::lock_guard guard(one_at_a_time);
  Device& control = device();
  if (!open_device(control, state)) return false;
  if (!control.objects.count(kClient) && !alloc(control, 0, kClientClass, nullptr, 0)) return false;
  control.next_gpu = gpu;
  groups.device = alloc(control, kClient, kDeviceClass, nullptr, 0);
  for (unsigned e = 0; e < kEngines; ++e) {
    GroupParams params{};
    params.engine_type = kEngineTypes[e];
    groups.objects[e] = alloc(control, groups.device, kGroupClass, &params, sizeof params);
    if (!groups.objects[e]) return close_groups(groups), false;
    groups.entries[e] = control.objects[groups.objects[e]].entry;
  }
  std::uint64_t slice_us = kDefaultSliceUs;
  Nvos54 call{};
  call.client = kClient;
  call.object = groups.objects[kCompute];
  call.command = kSetTimeslice;
  call.params = reinterpret_cast<std::uint64_t>(&slice_us);
  call.params_size = sizeof slice_us;
  call_kernel(control.fd, kControl, &call);
  return call.status == kOk;
}

void close_groups(const Groups& groups) {
  Device& control = device();
  for (const std::uint32_t object : groups.objects) {
    if (!object) continue;
    Nvos00 call{kClient, groups.device, object, 0};
    call_kernel(control.fd, kFree, &call);
  }
  if (!groups.device) return;
  Nvos00 call{kClient, kClient, groups.device, 0};
  call_kernel(control.fd, kFree, &call);
}

bool answer(int fd, unsigned long request, void* argument, int* result) {
  Device& control = device();
  std::lock_guard guard(control.lock);
  if (!is_state_file(control, fd)) return false;
  *result = 0;
  const bool ours = same_open_file(control, fd);
  if (request == kAlloc || request == kAllocShort) {
    Nvos64 call{};
    // The short form has the same head; its status stands where the long one has `rights`' end.
    auto* given = static_cast<Nvos64*>(argument);
    call.root = given->root, call.parent = given->parent, call.object = given->object;
    call.object_class = given->object_class, call.params = given->params;
    const std::uint32_t status = ours ? alloc_object(control, call) : kWrongFile;
    given->object = call.object;
    if (request == kAlloc) {
      given->status = status;
    } else {
      static_cast<std::uint32_t*>(argument)[7] = status;
    }
  } else if (request == kControl) {
    auto* call = static_cast<Nvos54*>(argument);
    call->status = ours ? control_object(control, *call) : kWrongFile;
  } else if (request == kFree) {
    auto* call = static_cast<Nvos00*>(argument);
    call->status = ours ? free_object(control, *call) : kWrongFile;
  } else {
    errno = EINVAL;
    *result = -1;
  }
  return true;
}

}  // namespace fakecuda::control

// Exported. Preemptible (ioctl.list), so that our own calls reach whoever stands before us.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            ...) noexcept {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  int result = 0;
  if (fakecuda::control::answer(fd, request, argument, &result)) return result;
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}
