// switchyardd: wires the rooms together and nothing else.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "monitor/control/kept_choice.h"
#include "monitor/history/database.h"
#include "monitor/options.h"
#include "monitor/platform/log_file.h"
#include "monitor/platform/nvml.h"
#include "monitor/platform/passed_sockets.h"
#include "monitor/platform/patient_gpus.h"
#include "monitor/reload.h"
#include "monitor/transport/job_files.h"
#include "monitor/transport/listen_socket.h"
#include "monitor/transport/metrics_http.h"
#include "monitor/transport/server.h"
#include "monitor/transport/takeover.h"
#include "switchyard/paths.h"
#include "switchyard/standard_streams.h"
#include "switchyard/status.h"

namespace {

using namespace switchyard;
using namespace switchyard::monitor;

constexpr Time kTakeOverLimit = std::chrono::seconds(3);

bool start_log(const Options& options) {
  if (options.log_file.empty()) {
    spdlog::set_default_logger(spdlog::stderr_logger_st("switchyardd"));
  } else {
    std::string why;
    auto file = open_log_file(options.log_file, options.log_bytes, why);
    if (file == nullptr) {
      std::fprintf(stderr, "switchyardd: opening the log '%s': %s\n", options.log_file.c_str(),
                   why.c_str());
      return false;
    }
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("switchyardd", std::move(file)));
  }
  spdlog::set_pattern(kLogPattern);
  spdlog::set_level(spdlog::level::from_str(options.settings.log_level));
  spdlog::flush_on(spdlog::level::info);
  return true;
}

// A client takes seven descriptors.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  spdlog::warn(
      "cannot raise the limit of open files from {} to {} ({}): with many clients, new ones are "
      "refused; raise it with 'ulimit -n'",
      before, limit.rlim_max, std::strerror(errno));
}

// Root's monitor serves all users: it takes little of the CPU, but is to have that soon while some
// user's processes take all of it.
void raise_priority() {
  constexpr int kNice = -10;
  if (::geteuid() != 0 || ::getpriority(PRIO_PROCESS, 0) <= kNice) return;
  if (::setpriority(PRIO_PROCESS, 0, kNice) == 0) return;
  spdlog::info("cannot raise its priority to nice {} ({}): under load, answers take longer", kNice,
               std::strerror(errno));
}

int refuse(int code, const std::string& why) {
  std::fprintf(stderr, "switchyardd: %s\n", why.c_str());
  return code;
}

// The driver may be loaded later than the monitor is started.
std::unique_ptr<Gpus> wait_for_gpus(Time limit) {
  const Time until = steady_now() + limit;
  auto gpus = open_nvml();
  while (gpus->list().empty() && steady_now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    gpus = open_nvml();
  }
  return gpus;
}

std::unique_ptr<history::Store> open_history(const Options& options, const Gpus& gpus) {
  if (options.history_folder.empty()) return nullptr;
  history::Place place{options.history_folder, options.history_days, options.history_bytes, {}};
  for (const GpuInfo& gpu : gpus.list()) {
    place.gpus.push_back({gpu.uuid_text, gpu.name, gpu.index});
  }
  return std::make_unique<history::Store>(
      [place](std::string& why) { return history::Database::open(place, why); });
}

// Makes the GPUs ours. False: they are another monitor's, which `why` names.
bool claim(const Options& options, const std::vector<std::string>& uuids,
           const std::vector<std::string>& files, std::vector<Fd>& claims, std::vector<Fd>& locks,
           std::string& why) {
  // Jobs of the monitors that end rejoin where this one will listen.
  if (::geteuid() == 0 && options.settings.socket == kSystemSocket) {
    take_over(uuids, kTakeOverLimit);
  }
  claims = claim_gpus(uuids, why);
  return claims.size() == uuids.size() && lock_devices(files, locks, why);
}

// The answers to Prometheus, where somebody asks for them.
struct Metrics {
  std::optional<MetricsPages> pages;
  std::optional<MetricsHttp> http;

  void begin(const Options& options, Fd listener, asio::io_context& io, Monitor& monitor) {
    if (!options.metrics && options.metrics_textfile.empty()) return;
    pages.emplace(io, monitor);
    if (!options.metrics_textfile.empty()) pages->write(options.metrics_textfile);
    if (!options.metrics) return;
    http.emplace(io, std::move(listener), options.metrics->address().is_v6(),
                 [this](auto then) { pages->get(std::move(then)); });
    spdlog::info("answers GET /metrics at {}", metrics_address_text(*options.metrics));
    if (options.metrics->address().is_loopback()) return;
    spdlog::warn("whoever reaches that address reads the names of users and jobs");
  }
};

int serve(const Options& options, std::vector<Fd> passed) {
  std::string why;
  bool taken = false;
  // Before the wait for a GPU: from now on no user starts a monitor (paths.h).
  if (options.system && !mark_system(why)) spdlog::warn("{}: users may start their own", why);
  const auto gpus = std::make_unique<PatientGpus>(wait_for_gpus(options.wait_for_gpu));
  std::vector<std::string> uuids;
  std::vector<std::string> files;  // one of several instances of a GPU, or of simulated GPUs
  for (const GpuInfo& gpu : gpus->list()) {
    uuids.push_back(gpu.uuid_text);
    const bool fresh = std::find(files.begin(), files.end(), gpu.device_file) == files.end();
    if (!gpu.device_file.empty() && fresh) files.push_back(gpu.device_file);
  }
  if (uuids.empty()) {
    return refuse(kNoSuchJobOrGpu,
                  "no GPU to manage: " + gpus->problem() +
                      "; if one appears later, wait for it with --wait-for-gpu 60s");
  }
  std::vector<Fd> claims, locks;
  if (!options.settings.observes && !claim(options, uuids, files, claims, locks, why)) {
    return refuse(kRefusedByPolicy, why);
  }
  Fd metrics_listener;
  if (options.metrics && !(metrics_listener = listen_for_metrics(*options.metrics, why))) {
    return refuse(kFailure, why);
  }
  // It may write for long at the end, when nobody is to find a socket where nobody answers.
  std::unique_ptr<history::Store> history;
  // The claims come first: a second monitor that is refused must never have had a socket, on which
  // somebody could wait for it in vain.
  ListenSocket place;
  if (!place.open(options.settings.socket, why, taken, std::move(passed))) {
    return refuse(taken ? kRefusedByPolicy : kFailure, why);
  }
  Settings settings = options.settings;
  settings.socket_passed = place.was_passed();

  std::random_device entropy;
  Monitor monitor(*gpus, settings, steady_now(),
                  [&entropy] { return (static_cast<std::uint64_t>(entropy()) << 32) | entropy(); });
  if (!settings.observes) restore_choice(monitor);
  history = open_history(options, *gpus);
  asio::io_context io(1);
  Server server(io, monitor);
  if (history != nullptr) {
    monitor.records_to(*history);
    server.listens_to(*history);
  }
  std::vector<int> claim_fds;
  for (Fd& claim : claims) {
    if (claim) claim_fds.push_back(claim.release());
  }
  server.answer_claims(std::move(claim_fds), "socket " + options.settings.socket);
  server.listen(place.release_listener());
  Metrics metrics;
  metrics.begin(options, std::move(metrics_listener), io, monitor);
  std::optional<JobFiles> job_files;
  if (!options.job_mapping_folder.empty()) {
    job_files.emplace(io, monitor, options.job_mapping_folder);
  }
  spdlog::info("listens on {}, {} {} GPUs", options.settings.socket,
               settings.observes ? "observes" : "manages", uuids.size());
  if (too_old_for_slices(gpus->driver_version())) {
    spdlog::warn("the driver {} is older than 535: gates replace time slices",
                 gpus->driver_version());
  }
  Reload reload(io, monitor, options);
  ServiceManager manager;
  server.reports_to(manager);
  manager.ready();
  server.run();
  monitor.ledger().sample(steady_now());
  return kOk;
}

}  // namespace

int main(int argc, char** argv) try {
  fill_closed_streams();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error of that file
  // The terminal of the job that started us may go away. Where a file counts, it is read anew.
  std::signal(SIGHUP, SIG_IGN);
  std::vector<Fd> passed = take_passed_sockets();
  int exit_code = kOk;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  if (options->only_checks) {
    for (const auto& remarks : {options->remarks.nobody, options->remarks.unanswered}) {
      for (const std::string& remark : remarks) std::fprintf(stderr, "%s\n", remark.c_str());
    }
    const std::string& file = options->config_file;
    // Only the machine's own may be missing. `switchyard config check` says the same.
    const bool missing = ::access(file.c_str(), F_OK) != 0 && errno == ENOENT;
    std::printf("%s\n", file.empty() ? "no file counts here"
                        : missing    ? ("there is no file " + file + ": the defaults count").c_str()
                                     : (file + " has no errors").c_str());
    return std::fflush(stdout) == 0 ? kOk : kFailure;
  }
  if (!start_log(*options)) return kFailure;
  raise_descriptor_limit();
  raise_priority();  // before there is another thread: each has its own
  return serve(*options, std::move(passed));
} catch (const std::exception& error) {
  std::fprintf(stderr, "switchyardd: %s\n", error.what());
  return switchyard::kFailure;
} catch (...) {
  return switchyard::kFailure;
}
