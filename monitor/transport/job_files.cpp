#include "monitor/transport/job_files.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <set>
#include <utility>

#include "monitor/core/lanes.h"
#include "monitor/platform/replace_file.h"

namespace switchyard::monitor {
namespace {

constexpr std::chrono::seconds kEvery{1};
constexpr int kGoodByeMs = 1000;

}  // namespace

std::map<unsigned, std::string> job_files_of(Monitor& monitor) {
  // Instances of one GPU have its index, and so one file.
  std::map<unsigned, std::set<std::string>> numbers;
  for (const GpuAccounts::Gpu& gpu : monitor.gpus().all()) numbers[gpu.info.index];
  for (const auto& [key, job] : monitor.registry().jobs()) {
    if (job.place.slurm_job.empty()) continue;
    // Job::used is kept for jobs with a quota alone.
    for (const std::size_t gpu : used_gpus(monitor.registry(), job)) {
      numbers[monitor.gpus()[gpu].info.index].insert(job.place.slurm_job);
    }
  }
  std::map<unsigned, std::string> out;
  for (const auto& [index, those] : numbers) {
    std::string& text = out[index];
    for (const std::string& number : those) text += number + "\n";
  }
  return out;
}

JobFiles::JobFiles(asio::io_context& io, Monitor& monitor, std::string folder)
    : monitor_(monitor),
      folder_(std::move(folder)),
      finished_(io, ::fcntl(background_.finished(), F_DUPFD_CLOEXEC, 3)),
      timer_(io) {
  listen();
  look();
}

// No job of a GPU is to be charged with it for ever. The next monitor writes all again.
JobFiles::~JobFiles() {
  const auto empty = [folder = folder_, files = job_files_of(monitor_)] {
    std::string ignored;
    for (const auto& [gpu, text] : files) {
      replace_file(folder + "/" + std::to_string(gpu), "", ignored);
    }
  };
  bool done = false;
  if (!background_.run(empty, [&done] { done = true; })) return;
  // A disk that never answers must not keep the monitor from its end.
  pollfd ready{background_.finished(), POLLIN, 0};
  while (!done && ::poll(&ready, 1, kGoodByeMs) > 0) background_.finish();
}

void JobFiles::listen() {
  finished_.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
    if (error) return;
    background_.finish();
    listen();
  });
}

void JobFiles::look() {
  const Texts now = job_files_of(monitor_);
  Texts changed;
  for (const auto& [gpu, text] : now) {
    const auto before = there_.find(gpu);
    if (before == there_.end() || before->second != text) changed.emplace(gpu, text);
  }
  if (changed.empty()) return written("", {});
  auto why = std::make_shared<std::string>();
  const auto write = [folder = folder_, changed, why] {
    for (const auto& [gpu, text] : changed) {
      if (!replace_file(folder + "/" + std::to_string(gpu), text, *why)) return;
    }
  };
  if (!background_.run(write, [this, why, changed] { written(*why, changed); })) {
    written("no thread can be had", {});
  }
}

void JobFiles::written(const std::string& why, const Texts& texts) {
  if (!why.empty() && !failed_) {
    spdlog::warn(
        "writing the Slurm jobs of each GPU into '{}': {}; it is tried again, without a line",
        folder_, why);
  }
  if (why.empty()) {
    for (const auto& [gpu, text] : texts) there_[gpu] = text;
  }
  failed_ = !why.empty();
  timer_.expires_after(kEvery);
  timer_.async_wait([this](ErrorCode error) {
    if (!error) look();
  });
}

}  // namespace switchyard::monitor
