#include "shared_state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "apart.h"
#include "visible.h"

namespace fakecuda {
namespace {

const char* failure = "";

int configured_devices() {
  const char* text = getenv("FAKECUDA_DEVICES");
  return std::max(0, text && *text ? atoi(text) : 1);
}

struct flock byte_of(int process) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = process;
  lock.l_len = 1;
  return lock;
}

// When this process began, in the kernel's ticks: with the pid, its identity.
std::uint64_t start_time() {
  char text[1024] = {};
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  const char* at = got > 0 ? strrchr(text, ')') : nullptr;  // the name before it may hold anything
  for (int field = 2; at && field < 22; ++field) at = strchr(at + 1, ' ');
  return at ? strtoull(at + 1, nullptr, 10) : 0;
}

void init_lock(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

}  // namespace

std::uint64_t environment_bytes(const char* name, std::uint64_t otherwise) {
  const char* text = getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const double number = strtod(text, &end);
  double unit = 1;
  if (!strcmp(end, "KiB")) unit = 1 << 10;
  if (!strcmp(end, "MiB")) unit = 1 << 20;
  if (!strcmp(end, "GiB")) unit = 1 << 30;
  return static_cast<std::uint64_t>(number * unit);
}

State* State::get(bool observer) {
  static std::mutex once;
  static State* state = nullptr;  // never destroyed: threads may outlive static destruction
  static bool attached = false;
  static pid_t attached_pid = 0;
  std::lock_guard guard(once);
  if (attached_pid != getpid()) {  // first call, or a child that inherited its parent's place
    state = new State;
    attached = false;
    attached_pid = getpid();
  }
  if (!attached) attached = state->attach(observer);
  if (!attached) return nullptr;
  if (!observer) state->file_->processes[state->self_].observer = 0;
  return state;
}

const char* State::why() { return failure; }

bool State::open_files() {
  const char* given = getenv("FAKECUDA_STATE");
  if (given && *given) {
    snprintf(path_, sizeof path_, "%s", given);
  } else {
    snprintf(path_, sizeof path_, "/tmp/fakecuda-%u.state", static_cast<unsigned>(getuid()));
  }
  char locks[sizeof path_ + 8];
  snprintf(locks, sizeof locks, "%s.locks", path_);
  // Closing any descriptor of the locks file would drop this process's locks, so it has its own
  // file, which is never closed.
  if (locks_fd_ < 0) locks_fd_ = apart(open(locks, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (locks_fd_ < 0) return failure = "the locks file can't be opened", false;
  return true;
}

bool State::attach(bool observer) {
  if (configured_devices() > kMaxGpus) {
    return failure = "FAKECUDA_DEVICES: at most 20 GPUs are simulated", false;
  }
  if (!open_files()) return false;
  flock(locks_fd_, LOCK_EX);
  struct Unlock {
    int fd;
    ~Unlock() { flock(fd, LOCK_UN); }
  } unlock_at_end{locks_fd_};

  state_fd_ = apart(open(path_, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (state_fd_ < 0) return failure = "the state file can't be opened", false;
  struct stat status {};
  fstat(state_fd_, &status);
  struct {
    std::uint64_t magic;
    std::uint32_t version, bytes;
  } head{};
  const bool known = pread(state_fd_, &head, sizeof head, 0) == sizeof head &&
                     head.magic == kStateMagic && head.version == kStateVersion &&
                     head.bytes == sizeof(StateFile) &&
                     status.st_size == static_cast<off_t>(sizeof(StateFile));
  if (!known && status.st_size > 0) {  // written by another version: leave it to its users
    unlink(path_);
    close(state_fd_);
    state_fd_ = apart(open(path_, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (state_fd_ < 0) return failure = "the state file can't be opened", false;
  }
  if (ftruncate(state_fd_, sizeof(StateFile)) != 0) return failure = "no room for the state", false;
  void* map = mmap(nullptr, sizeof(StateFile), PROT_READ | PROT_WRITE, MAP_SHARED, state_fd_, 0);
  if (map == MAP_FAILED) return failure = "the state file can't be mapped", false;
  file_ = static_cast<StateFile*>(map);
  if (!known) init_lock(&file_->lock);
  file_->magic = kStateMagic;
  file_->version = kStateVersion;
  file_->bytes = sizeof(StateFile);

  Locked locked(*this);
  reap_locked();
  bool first = true;
  for (auto& process : file_->processes) first &= !process.in_use;
  if (first || !known) set_up();
  visible_ = visible_gpus(observer ? nullptr : getenv("CUDA_VISIBLE_DEVICES"), file_->gpu_count);
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessEntry& entry = file_->processes[i];
    if (entry.in_use || !lock_byte(i)) continue;
    memset(static_cast<void*>(&entry), 0, sizeof entry);
    entry.pid = getpid();
    entry.start_time = start_time();
    entry.observer = observer;
    entry.in_use = 1;
    self_ = i;
    return true;
  }
  return failure = "too many processes", false;
}

void State::set_up() {
  memset(static_cast<void*>(file_->processes), 0, sizeof file_->processes);
  memset(static_cast<void*>(file_->gpus), 0, sizeof file_->gpus);
  memset(static_cast<void*>(file_->exported), 0, sizeof file_->exported);
  file_->gpu_count = configured_devices();
  for (auto& gpu : file_->gpus) {
    gpu.total_bytes = environment_bytes("FAKECUDA_MEMORY", 4096 * kMiB);
    for (auto& engine : gpu.engines) {
      engine.holder = -1;
      engine.resident = -1;
    }
  }
}

bool State::lock_byte(int process) {
  struct flock lock = byte_of(process);
  return fcntl(locks_fd_, F_SETLK, &lock) == 0;
}

bool State::alive(int process) {
  if (process == self_) return true;
  struct flock lock = byte_of(process);
  if (fcntl(locks_fd_, F_GETLK, &lock) != 0) return true;
  if (lock.l_type != F_UNLCK) return true;
  // NVML and the driver in one process have each a lock, which the process itself can't see.
  const ProcessEntry& entry = file_->processes[process];
  return entry.pid == getpid() && entry.start_time == start_time();
}

int State::pid_of(int process) {
  const int written = file_->processes[process].pid;
  if (process == self_) return written;
  struct flock lock = byte_of(process);
  if (fcntl(locks_fd_, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return written;
  return lock.l_pid > 0 ? lock.l_pid : written;
}

void State::lock() {
  if (pthread_mutex_lock(&file_->lock) == EOWNERDEAD) pthread_mutex_consistent(&file_->lock);
}

void State::unlock() { pthread_mutex_unlock(&file_->lock); }

// Descriptors may be anywhere, on their way between two processes, say. Their lock tells.
void State::reap_exported_locked() {
  const auto released = [](const ExportedEntry& e) { return e.in_use && e.maker < 0; };
  if (std::none_of(std::begin(file_->exported), std::end(file_->exported), released)) return;
  // The kernel gives the list in parts, and a lock that ends between two hides another: so twice.
  std::set<std::uint64_t> kept;
  for (int pass = 0; pass < 2; ++pass) {
    FILE* locks = fopen("/proc/locks", "re");
    if (!locks) return;
    char line[256];
    while (fgets(line, sizeof line, locks)) {
      unsigned long long inode = 0;
      if (sscanf(line, "%*s OFDLCK %*s %*s %*s %*x:%*x:%llu", &inode) == 1) kept.insert(inode);
    }
    fclose(locks);
  }
  for (ExportedEntry& entry : file_->exported) {
    if (released(entry) && !kept.count(entry.inode)) entry.in_use = 0;
  }
}

void State::reap_locked() {
  bool dead[kMaxProcesses] = {};
  bool any = false;
  for (int i = 0; i < kMaxProcesses; ++i) {
    if (!file_->processes[i].in_use || alive(i)) continue;
    dead[i] = any = true;
  }
  for (ExportedEntry& entry : file_->exported) {
    if (entry.in_use && entry.maker >= 0 && dead[entry.maker]) entry.maker = -1;
  }
  reap_exported_locked();
  if (!any) return;
  for (int gpu = 0; gpu < file_->gpu_count; ++gpu) {
    for (auto& engine : file_->gpus[gpu].engines) {
      for (int g = 0; g < engine.high_water; ++g) {
        GroupEntry& group = engine.groups[g];
        if (!group.in_use || !dead[group.process]) continue;
        if (group.runnable.exchange(0) && engine.holder != g && engine.waiting) --engine.waiting;
        if (engine.holder == g) engine.holder = -1;
        if (engine.resident == g) engine.resident = -1;
        group.in_use = 0;
      }
    }
  }
  for (int i = 0; i < kMaxProcesses; ++i) {
    const ProcessEntry& process = file_->processes[i];
    if (dead[i] && process.server > 0 && !dead[process.server - 1]) reap_seats_locked(process);
  }
  for (int i = 0; i < kMaxProcesses; ++i) {
    if (dead[i]) memset(static_cast<void*>(&file_->processes[i]), 0, sizeof(ProcessEntry));
  }
}

// A dead client wants nothing any more of the groups of its server.
void State::reap_seats_locked(const ProcessEntry& dead) {
  const ProcessEntry& server = file_->processes[dead.server - 1];
  if (!server.in_use || !server.serves) return;
  for (unsigned e = 0; e < kEngines; ++e) {
    EngineEntry& engine = file_->gpus[server.gpu].engines[e];
    GroupEntry& group = engine.groups[server.groups[e]];
    if (dead.seats[e] == 0) continue;
    group.seats -= std::min(dead.seats[e], group.seats);
    if (group.seats > 0 || !group.runnable.exchange(0)) continue;
    if (engine.holder == server.groups[e]) {
      engine.holder = -1;
    } else if (engine.waiting) {
      --engine.waiting;
    }
  }
}

std::uint64_t State::used(int gpu) {
  std::uint64_t sum = 0;
  for (auto& process : file_->processes) {
    if (process.in_use) sum += process.used_bytes[gpu];
  }
  for (auto& entry : file_->exported) {
    if (entry.in_use && entry.maker < 0 && entry.gpu == gpu) sum += entry.bytes;
  }
  return sum;
}

int State::device_of(int gpu) const {
  const auto found = std::find(visible_.begin(), visible_.end(), gpu);
  return found != visible_.end() ? static_cast<int>(found - visible_.begin()) : -1;
}

int State::export_memory(int fd, int device, std::uint64_t bytes) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  // An open file of its own: duplicates share its lock, the maker's own descriptor does not.
  const int out = apart(open(path, O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  struct stat status {};
  if (out < 0) return -1;
  if (fcntl(out, F_OFD_SETLK, &lock) != 0 || fstat(out, &status) != 0) {
    close(out);
    return -1;
  }
  Locked locked(*this);
  ExportedEntry* free = nullptr;
  for (ExportedEntry& entry : file_->exported) {
    if (entry.in_use && entry.inode == status.st_ino) return out;
    if (!entry.in_use && !free) free = &entry;
  }
  if (!free) {
    close(out);
    return -1;
  }
  *free = {status.st_ino, bytes, gpu_of(device), self_, 1};
  return out;
}

int State::device_of_exported(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return 0;
  Locked locked(*this);
  for (const ExportedEntry& entry : file_->exported) {
    if (entry.in_use && entry.inode == status.st_ino) return device_of(entry.gpu);
  }
  return 0;
}

bool State::charge(int device, std::uint64_t bytes) {
  const int gpu = gpu_of(device);
  Locked locked(*this);
  const std::uint64_t total = file_->gpus[gpu].total_bytes;
  if (bytes > total) return false;
  if (used(gpu) + bytes > total) reap_locked();
  if (used(gpu) + bytes > total) return false;
  file_->processes[self_].used_bytes[gpu] += bytes;
  return true;
}

void State::uncharge(int device, std::uint64_t bytes, int fd) {
  struct stat status {};
  const bool known = fd >= 0 && fstat(fd, &status) == 0;
  Locked locked(*this);
  file_->processes[self_].used_bytes[gpu_of(device)] -= bytes;
  for (ExportedEntry& entry : file_->exported) {
    if (known && entry.in_use && entry.inode == status.st_ino) entry.maker = -1;
  }
  if (known) reap_exported_locked();
}

OnGpus State::take_off() {
  Locked locked(*this);
  ProcessEntry& own = file_->processes[self_];
  OnGpus off;
  for (int gpu = 0; gpu < kMaxGpus; ++gpu) {
    off.contexts[gpu] = std::exchange(own.contexts[gpu], 0);
    off.used_bytes[gpu] = own.used_bytes[gpu].exchange(0);
  }
  return off;
}

bool State::put_back(const OnGpus& off, const int* to) {
  Locked locked(*this);
  reap_locked();
  for (int gpu = 0; gpu < file_->gpu_count; ++gpu) {
    if (off.used_bytes[gpu] > file_->gpus[to[gpu]].total_bytes - used(to[gpu])) return false;
  }
  ProcessEntry& own = file_->processes[self_];
  for (int gpu = 0; gpu < file_->gpu_count; ++gpu) {
    own.contexts[to[gpu]] = off.contexts[gpu];
    own.used_bytes[to[gpu]] = off.used_bytes[gpu];
  }
  for (int& gpu : visible_) gpu = to[gpu];
  return true;
}

bool State::has_exported() {
  Locked locked(*this);
  return std::any_of(std::begin(file_->exported), std::end(file_->exported),
                     [&](const ExportedEntry& e) { return e.in_use && e.maker == self_; });
}

int State::add_group(int device, Engine engine) {
  Locked locked(*this);
  EngineEntry& entry = gpu(device).engines[engine];
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int g = 0; g < kMaxGroups; ++g) {
      GroupEntry& group = entry.groups[g];
      if (group.in_use) continue;
      group.process = self_;
      group.slice_us = kDefaultSliceUs;
      group.runnable = 0;
      group.busy_ns = 0;
      group.operations = 0;
      group.seats = 0;
      if (entry.resident == g) entry.resident = -1;
      if (g >= entry.high_water) entry.high_water = g + 1;
      group.in_use = 1;
      return g;
    }
    reap_locked();
  }
  return -1;
}

void State::remove_group(int device, Engine engine, int group) {
  Locked locked(*this);
  EngineEntry& entry = gpu(device).engines[engine];
  if (entry.resident == group) entry.resident = -1;
  entry.groups[group].in_use = 0;
}

const char* gpu_name() { return "Switchyard Simulated GPU"; }

void gpu_uuid(int index, unsigned char out[16]) {
  static constexpr unsigned char kBase[16] = {0x5f, 0x1c, 0x0d, 0xa0, 0x51, 0x4d, 0x4a, 0x70,
                                              0x8a, 0x11, 0x73, 0x77, 0x69, 0x74, 0x63, 0x00};
  memcpy(out, kBase, 16);
  // Another state is another machine's GPU, so that tests side by side have monitors of their own.
  if (const char* given = getenv("FAKECUDA_STATE"); given && *given) {
    std::uint32_t hash = 2166136261u;
    for (const char* c = given; *c; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 16777619u;
    memcpy(out + 10, &hash, sizeof hash);
  }
  out[15] = static_cast<unsigned char>(index);
}

void uuid_text(int index, char out[48]) {
  unsigned char b[16];
  gpu_uuid(index, b);
  snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
           b[14], b[15]);
}

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

long futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t timeout_ns) {
  timespec limit{static_cast<time_t>(timeout_ns / 1'000'000'000),
                 static_cast<long>(timeout_ns % 1'000'000'000)};
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit,
                 nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, 64, nullptr, nullptr, 0);
}

}  // namespace fakecuda
