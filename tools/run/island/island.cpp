#include "tools/run/island/island.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "switchyard/folders.h"
#include "switchyard/paths.h"
#include "tools/base/knobs.h"
#include "tools/run/environment.h"
#include "tools/run/gpus.h"
#include "tools/run/island/daemon.h"
#include "tools/run/island/keeper.h"
#include "tools/run/island/locks.h"

namespace switchyard::tools::island {
namespace {

namespace fs = std::filesystem;
using Changes = std::vector<std::pair<std::string, std::string>>;

constexpr unsigned kDefaultMode = 0;  // NVML's compute mode: any number of processes

// `remedy`: what helps beside leaving the option out, if anything.
Error refused(const std::string& why, const std::string& remedy = "") {
  return {kRunRefused,
          fmt::format("--co-run: {}; {}leave it out", why, remedy.empty() ? "" : remedy + ", or ")};
}

// Each of them must be ours alone: whoever can write there can be the daemon of our jobs.
std::optional<Error> make_folders(const Island& island) {
  const std::string islands = fs::path(island.folder).parent_path().string();
  const std::string runtime = fs::path(islands).parent_path().string();
  for (const std::string& folder : {runtime, islands, island.folder, island.pipe(), island.log()}) {
    const int made = ::mkdir(folder.c_str(), 0700);
    const std::string why = made != 0 && errno != EEXIST ? std::strerror(errno) : "";
    if (!why.empty()) return refused(fmt::format("cannot make {}: {}", folder, why));
    struct stat about {};
    const bool ours = ::lstat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) &&
                      about.st_uid == ::geteuid() && (about.st_mode & 022) == 0;
    if (!ours) return refused(folder + " is no folder of yours alone", "remove it");
  }
  return std::nullopt;
}

// The short end of a UUID: the path of a socket has room for 107 characters.
std::string end_of(const std::string& uuid) { return uuid.substr(uuid.rfind('-') + 1); }

Island island_of(const std::string& runtime, const std::string& name, const std::string& gpu) {
  return {name, gpu, fmt::format("{}/islands/{}-{}", runtime, name, end_of(gpu))};
}

Result<std::string> runtime_folder() {
  char socket[kSocketPathBytes];
  if (!user_socket_path(socket)) return refused("XDG_RUNTIME_DIR is too long");
  return fs::path(socket).parent_path().string();
}

// The daemon and its servers are a job of their own. Their GPU tells the library what they are.
Changes daemon_environment(const Island& island, const std::string& socket,
                           const std::string& library) {
  Changes all;
  for (const Knob& knob : knobs()) all.emplace_back(knob.environment, "");
  const char* preload = std::getenv("LD_PRELOAD");
  all.insert(all.end(), {{"SWITCHYARD_REQUIRE", ""},
                         {"SWITCHYARD_CO_RUN", island.name},
                         {"SWITCHYARD_NAME", "island-" + island.name},
                         {"SWITCHYARD_ISLAND_GPU", island.gpu},
                         {"SWITCHYARD_SOCKET", socket},
                         {"LD_PRELOAD", preload_with(preload != nullptr ? preload : "", library)},
                         {"CUDA_VISIBLE_DEVICES", island.gpu},
                         {kPipeVariable, island.pipe()},
                         {kLogVariable, island.log()}});
  return all;
}

}  // namespace

Result<std::string> choose_gpu(const char* visible, const NvmlReport& report) {
  if (report.gpus.empty()) return refused(report.problem);
  const std::string text = visible != nullptr ? visible : "";
  const bool one = report.gpus.size() == 1;
  if (visible == nullptr && !one) {
    return refused(
        fmt::format("an island has one GPU, and the job would see {}", report.gpus.size()),
        "choose one with --gpus");
  }
  if (visible != nullptr && text.find(',') != std::string::npos) {
    return refused(
        fmt::format("an island has one GPU, and CUDA_VISIBLE_DEVICES names several ({})", text),
        "choose one with --gpus");
  }
  // CUDA may number the GPUs otherwise than NVML does.
  if (visible != nullptr && !one && text.rfind("GPU-", 0) != 0) {
    return refused(fmt::format("CUDA_VISIBLE_DEVICES={} is no UUID", text),
                   "choose the GPU with --gpus");
  }
  const auto uuid =
      visible != nullptr ? choose_gpus(text, report, false) : report.gpus.front().uuid;
  if (!uuid) return refused(uuid.error().text);
  for (const NvmlGpu& gpu : report.gpus) {
    if (gpu.uuid != *uuid) continue;
    if (gpu.mig) return refused(fmt::format("GPU {} is divided by MIG", gpu.index));
    if (gpu.compute_mode != kDefaultMode) {
      return refused(fmt::format("the compute mode of GPU {} lets one process alone in, so no job "
                                 "could stand beside the island",
                                 gpu.index),
                     "change it with `nvidia-smi -c DEFAULT`");
    }
  }
  return *uuid;
}

Result<Island> choose(const std::string& name) {
  if (const char* other = std::getenv(kPipeVariable); other != nullptr && other[0] != '\0') {
    return refused(fmt::format("{} is set to {}, another MPS daemon's", kPipeVariable, other));
  }
  const char* off = std::getenv("SWITCHYARD_DISABLE");
  const auto before = off != nullptr ? std::optional<std::string>(off) : std::nullopt;
  const NvmlReport report = ask_nvml();
  // ask_nvml() switches the library off in this process, which is about to be the job's.
  ::unsetenv("SWITCHYARD_DISABLE");
  if (before) ::setenv("SWITCHYARD_DISABLE", before->c_str(), 1);
  auto gpu = choose_gpu(std::getenv("CUDA_VISIBLE_DEVICES"), report);
  if (!gpu) return gpu.error();
  auto runtime = runtime_folder();
  if (!runtime) return runtime.error();
  const Island island = island_of(*runtime, name, *gpu);
  if (auto no_folder = make_folders(island)) return *no_folder;
  ::setenv("CUDA_VISIBLE_DEVICES", gpu->c_str(), 1);
  return island;
}

std::optional<Error> enter(const Island& island, const std::string& socket,
                           const std::string& library) {
  const Fd starting = lock_file(island, "starting", LOCK_EX);
  Fd members = starting ? lock_file(island, "members", LOCK_SH) : Fd();
  if (!members) return refused(fmt::format("cannot lock the files of {}", island.folder));
  if (!ask(island.pipe(), "get_server_list")) {
    if (auto failed = start(daemon_environment(island, socket, library))) return failed;
  }
  leave_keeper(island);
  ::setenv(kPipeVariable, island.pipe().c_str(), 1);
  ::setenv(kLogVariable, island.log().c_str(), 1);
  // The job's processes hold the lock as long as any of them lives.
  ::fcntl(members.release(), F_SETFD, 0);
  return std::nullopt;
}

void terminate_client(const std::string& name, const std::string& gpu, int pid) {
  const auto runtime = runtime_folder();
  if (runtime) island::terminate_client(island_of(*runtime, name, gpu).pipe(), pid);
}

void leave() {
  const char* pipe = std::getenv(kPipeVariable);
  const auto runtime = runtime_folder();
  // Another daemon's is not ours to touch.
  if (pipe == nullptr || !runtime || std::string(pipe).rfind(*runtime + "/islands/", 0) != 0)
    return;
  ::unsetenv(kPipeVariable);
  ::unsetenv(kLogVariable);
}

}  // namespace switchyard::tools::island
