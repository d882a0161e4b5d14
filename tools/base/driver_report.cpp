#include "tools/base/driver_report.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "switchyard/cuda_library.h"
#include "switchyard/known_calls.h"
#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

constexpr int kLimitMs = 20000;   // cuInit of a machine with eight GPUs takes seconds
constexpr int kStubLibrary = 34;  // CUDA_ERROR_STUB_LIBRARY

// Those of CUresult that NVIDIA's documentation names for cuInit, and what users report beside
// them.
constexpr InitError kInitErrors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "the host has no memory left for the driver",
     "free memory of the host, or raise the limit of the container or of `ulimit -v`"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "the library is the toolkit's stub, not a driver",
     "take the toolkit's stubs folder out of LD_LIBRARY_PATH"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is busy or another process has it for itself",
     "see `nvidia-smi -q -d COMPUTE`; `nvidia-smi -c DEFAULT` ends the exclusive mode"},
    {100, "CUDA_ERROR_NO_DEVICE", "the driver finds no GPU that this process may use",
     "see `nvidia-smi -L`; unset CUDA_VISIBLE_DEVICES; start a container with its GPUs (--gpus "
     "all)"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "CUDA_VISIBLE_DEVICES names a GPU that there is not",
     "compare CUDA_VISIBLE_DEVICES with `nvidia-smi -L`"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "the operating system refused the driver a call",
     "check that you may open /dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "a service that the GPUs need does not run yet",
     "start it: `sudo systemctl start nvidia-fabricmanager`"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the kernel module and libcuda have different versions",
     "restart the machine after an update of the driver; in a container use the host's libcuda"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "the compatibility library does not support this GPU",
     "take the folder of cuda-compat out of LD_LIBRARY_PATH"},
    {999, "CUDA_ERROR_UNKNOWN", "the driver does not say why",
     "see `dmesg | grep NVRM`; load the module: `sudo modprobe nvidia_uvm`"},
};

#define REPORT_CALLS(CALL) CALL(cuInit) CALL(cuDriverGetVersion) CALL(cuDeviceGetCount)
SWITCHYARD_CUDA_FUNCTIONS(Driver, REPORT_CALLS);

nlohmann::json look(bool starts) {
  nlohmann::json report;
  void* library = cuda::open_library();
  if (library == nullptr) {
    const char* why = ::dlerror();
    return {{"reason", why != nullptr ? why : "unknown"}};
  }
  report["found"] = true;
  Driver driver;
  const char* missing = driver.fill(cuda::in_library(library));
  Dl_info about{};
  if (driver.cuInit != nullptr && ::dladdr(reinterpret_cast<void*>(driver.cuInit), &about) != 0) {
    report["path"] = about.dli_fname;
  }
  if (missing != nullptr) {
    report["reason"] = std::string("it lacks ") + missing;
    return report;
  }
  int number = 0;
  if (driver.cuDriverGetVersion(&number) == CUDA_SUCCESS) report["version"] = number;
  if (!starts) return report;
  const int result = driver.cuInit(0);
  report["init_result"] = result;
  if (result == CUDA_SUCCESS && driver.cuDeviceGetCount(&number) == CUDA_SUCCESS) {
    report["devices"] = number;
  }
  return report;
}

[[noreturn]] void child(int out, bool starts) {
  // The driver may print; nothing of that is our user's business.
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 1);
  ::dup2(null, 2);
  ::setenv("SWITCHYARD_DISABLE", "1", 1);  // asks the driver itself, also inside a job
  const std::string text =
      look(starts).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  (void)!::write(out, text.data(), text.size());
  ::_exit(0);
}

// Everything until the other side closes, or what came before the limit.
std::string read_all(int fd, int limit_ms) {
  std::string text;
  pollfd entry{fd, POLLIN, 0};
  while (::poll(&entry, 1, limit_ms) > 0) {
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

// `starts`: by cuInit, which takes its time.
DriverReport ask(bool starts) {
  DriverReport report;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    report.reason = "no pipe could be made";
    return report;
  }
  const pid_t pid = ::fork();
  if (pid == 0) child(ends[1], starts);
  ::close(ends[1]);
  const std::string text = pid > 0 ? read_all(ends[0], kLimitMs) : std::string();
  ::close(ends[0]);
  if (pid > 0) {
    ::kill(pid, SIGKILL);  // it is done, or it hangs in the driver
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  const auto said = nlohmann::json::parse(text, nullptr, false);
  if (!said.is_object()) {
    report.reason = "libcuda ended the process or hung";
    return report;
  }
  report.answered = true;
  report.found = truth_of(said, "found");
  report.path = text_of(said, "path", "");
  const auto init = said.find("init_result");
  if (init != said.end() && init->is_number_integer()) report.init_result = init->get<int>();
  report.version = static_cast<int>(number_of(said, "version"));
  report.devices = static_cast<int>(number_of(said, "devices"));
  report.reason = text_of(said, "reason", "");
  return report;
}

}  // namespace

DriverReport ask_driver() { return ask(true); }

int driver_version() { return ask(false).version; }

std::string cuda_version_text(int version) {
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

std::string newer_driver_remedy(int known) {
  const std::string newest = cuda_version_text(kTableVersion);
  return (known < kTableVersion
              ? fmt::format("build Switchyard with the headers of {} (docs/guide/limits.md), or ",
                            newest)
              : std::string()) +
         fmt::format("set SWITCHYARD_NEWER_DRIVER=1 if the program uses {} or older",
                     cuda_version_text(known));
}

const InitError* init_error(int code) {
  for (const InitError& error : kInitErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

std::string why_no_gpu(const DriverReport& report) {
  if (!report.answered) return fmt::format("no GPU: {}", report.reason);
  if (!report.found)
    return fmt::format("no GPU: libcuda.so.1 cannot be loaded ({})", report.reason);
  if (const InitError* error = init_error(report.init_result)) {
    return fmt::format("no GPU: cuInit of {} says error {} ({}): {}", report.path, error->code,
                       error->name, error->meaning);
  }
  if (report.init_result != 0) {
    return fmt::format("no GPU: cuInit of {} says error {}", report.path, report.init_result);
  }
  if (report.devices == 0) return fmt::format("no GPU: {} sees none", report.path);
  return fmt::format("no GPU that the monitor can see, although {} sees {}; restart the monitor",
                     report.path, report.devices);
}

std::string why_no_gpu() { return why_no_gpu(ask_driver()); }

}  // namespace switchyard::tools
