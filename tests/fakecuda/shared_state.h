// The state file: what the processes that use the simulated GPU have in common.
//
// Concept. One file (FAKECUDA_STATE), mapped by every process. It has the processes, the memory
// that each uses on each GPU, and the channel groups with their slices and clocks. A process is
// alive as long as it holds a record lock on its byte of FILE.locks. The kernel drops that lock at
// its death, whatever its PID namespace. A process that finds a dead one's entries removes them
// (reap). The first process to attach when no other is alive sets the GPUs up from its own
// FAKECUDA_MEMORY and FAKECUDA_DEVICES.
//
// Threading: `Locked` is the one lock, process-shared and robust. Words marked atomic are read
// without it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "slice_rule.h"

namespace fakecuda {

inline constexpr std::uint64_t kStateMagic = 0x3144'5550'4745'4b41;
inline constexpr std::uint32_t kStateVersion = 7;
inline constexpr int kMaxGpus = 20;  // more than the library has lanes for
inline constexpr int kMaxProcesses = 512;
inline constexpr int kMaxGroups = 512;  // per engine
inline constexpr int kMaxExported = 4096;
inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kContextBytes = 8 * kMiB;

// What another process, or the same, asks of a process's own driver (checkpoint.h).
struct CheckpointRequest {
  std::atomic<std::uint32_t> asked;     // a futex word: the number of the request
  std::atomic<std::uint32_t> answered;  // a futex word: that of the last answer
  std::int32_t asker;                   // index of its ProcessEntry + 1; 0: nobody
  std::uint32_t call;
  std::uint32_t timeout_ms;
  std::int32_t to[kMaxGpus];  // where what is on each GPU goes
  std::int32_t result;        // CUresult
  std::int32_t value;         // the state, or the thread
};

struct ProcessEntry {
  std::int32_t pid;  // in its own namespace; see State::pid_of
  std::uint32_t in_use;
  std::uint64_t start_time;
  std::uint32_t observer;  // NVML only
  std::uint32_t contexts[kMaxGpus];
  std::atomic<std::uint64_t> used_bytes[kMaxGpus];  // contexts included
  CheckpointRequest checkpoint;
  // Of the simulated MPS (mps/client.h). Of a server: its groups on its GPU, and what a client's
  // work did wrong last.
  std::uint32_t serves;
  std::int32_t gpu;
  std::int32_t groups[kEngines];
  std::atomic<std::uint32_t> faults;
  std::atomic<std::int32_t> fault;
  // Of a client: index of its server's entry + 1; 0: it is none. How many of its seats want each
  // engine.
  std::int32_t server;
  std::uint32_t seats[kEngines];
  std::atomic<std::uint32_t> terminated;
};

struct GroupEntry {
  std::atomic<std::uint32_t> in_use;
  std::int32_t process;  // index of its ProcessEntry
  std::atomic<std::uint32_t> slice_us;
  std::atomic<std::uint32_t> runnable;
  std::atomic<std::uint32_t> granted;  // futex word: bumped when the engine is handed to it
  std::atomic<std::uint64_t> busy_ns;  // virtual time it ran
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> since_ns;  // on the engine's clock: its turn began then
  std::uint32_t seats;                  // of a server: those of its clients that want the engine
};

struct EngineEntry {
  std::atomic<std::int32_t> holder;     // group that has the engine, or -1
  std::atomic<std::int32_t> resident;   // group whose state is on the engine, or -1
  std::atomic<std::uint32_t> waiting;   // runnable groups besides the holder
  std::atomic<std::uint64_t> clock_ns;  // virtual, on the scale of CLOCK_MONOTONIC
  std::atomic<std::uint64_t> switch_ns;
  std::atomic<std::uint64_t> switches;
  std::int32_t high_water;  // groups in use are below it
  GroupEntry groups[kMaxGroups];
};

struct GpuEntry {
  std::uint64_t total_bytes;
  EngineEntry engines[kEngines];
};

// Memory that a descriptor keeps. As measured: once its maker has released it, it is used and no
// process's, until the last descriptor is closed.
struct ExportedEntry {
  std::uint64_t inode;
  std::uint64_t bytes;
  std::int32_t gpu;
  std::int32_t maker;  // index of its ProcessEntry; -1: it has released it
  std::uint32_t in_use;
};

struct StateFile {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t bytes;
  pthread_mutex_t lock;
  std::int32_t gpu_count;
  ProcessEntry processes[kMaxProcesses];
  GpuEntry gpus[kMaxGpus];
  ExportedEntry exported[kMaxExported];
};

// A process's things on the GPUs.
struct OnGpus {
  std::uint32_t contexts[kMaxGpus] = {};
  std::uint64_t used_bytes[kMaxGpus] = {};
};

class State {
 public:
  // The state of this process, attached at the first call. Null when the file can't be used; why()
  // then says what failed.
  static State* get(bool observer);
  static const char* why();

  StateFile& file() { return *file_; }
  // The devices of this process (visible.h): how many, and the GPU behind one. device_of() tells
  // the device that a GPU is; -1: the process does not see that GPU. An observer sees all GPUs.
  int devices() const { return static_cast<int>(visible_.size()); }
  int gpu_of(int device) const { return visible_[static_cast<std::size_t>(device)]; }
  int device_of(int gpu) const;
  GpuEntry& gpu(int device) { return file_->gpus[gpu_of(device)]; }
  int self() const { return self_; }
  const char* path() const { return path_; }

  // The process is alive (or this one).
  bool alive(int process);
  // Its pid as this process sees it.
  int pid_of(int process);

  // Charges memory of a device to this process; false when there isn't enough.
  bool charge(int device, std::uint64_t bytes);
  // `fd`: by which it may have been exported.
  void uncharge(int device, std::uint64_t bytes, int fd = -1);
  // All that this process has on the GPUs is taken off them, and put back. `to`: where what was on
  // each GPU goes, and where its devices are from then on. False: there is no room for all of it.
  OnGpus take_off();
  bool put_back(const OnGpus& off, const int* to);
  // Whether a descriptor keeps memory that this process made and has.
  bool has_exported();
  // Of a GPU as NVML numbers it.
  std::uint64_t used(int gpu);
  // Removes the entries of the dead, and of what no descriptor keeps any more. REQUIRES: locked.
  void reap_locked();

  // A new descriptor of memory of this process; -1 when there is none. Copies of the descriptor
  // keep the memory, too.
  int export_memory(int fd, int device, std::uint64_t bytes);
  // The device that exported memory is of, by its descriptor; 0: not known.
  int device_of_exported(int fd);

  // A channel group of this process on an engine of a device; -1 when there are none left.
  int add_group(int device, Engine engine);
  void remove_group(int device, Engine engine, int group);

  void lock();
  void unlock();

 private:
  void reap_exported_locked();
  void reap_seats_locked(const ProcessEntry& dead);
  bool attach(bool observer);
  bool open_files();
  bool lock_byte(int process);
  void set_up();

  StateFile* file_ = nullptr;
  int state_fd_ = -1;
  int locks_fd_ = -1;
  int self_ = -1;
  char path_[256] = {};
  std::vector<int> visible_;
};

class Locked {
 public:
  explicit Locked(State& state) : state_(state) { state_.lock(); }
  ~Locked() { state_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  State& state_;
};

// A size in the environment, such as 8GiB, or what to take without one.
std::uint64_t environment_bytes(const char* name, std::uint64_t otherwise);

// The name and UUID of GPU `index`, the same in the driver and in NVML.
const char* gpu_name();
void gpu_uuid(int index, unsigned char out[16]);
void uuid_text(int index, char out[48]);

std::uint64_t monotonic_ns();
long futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t timeout_ns);
void futex_wake(std::atomic<std::uint32_t>& word);

}  // namespace fakecuda
