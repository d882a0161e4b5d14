#include "monitor/transport/metrics_pages.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "monitor/export/prometheus.h"
#include "monitor/platform/replace_file.h"

namespace switchyard::monitor {

MetricsPages::Worker::Worker(asio::io_context& io)
    : finished(io, ::fcntl(background.finished(), F_DUPFD_CLOEXEC, 3)) {
  listen();
}

void MetricsPages::Worker::listen() {
  finished.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
    if (error) return;
    background.finish();
    listen();
  });
}

MetricsPages::MetricsPages(asio::io_context& io, Monitor& monitor)
    : collector_(monitor), renders_(io), writes_(io), timer_(io) {}

void MetricsPages::get(std::function<void(Page)> then) {
  const Time now = steady_now();
  if (page_ != nullptr && now - made_at_ < kPageStays) return then(page_);
  waiting_.push_back(std::move(then));
  if (waiting_.size() > 1) return;
  made_at_ = now;
  // The thread has plain values alone: it may outlive us.
  auto seen = std::make_shared<metrics::Snapshot>(collector_.look(now));
  auto text = std::make_shared<std::string>();
  const bool runs = renders_.background.run([seen, text] { *text = metrics::render(*seen); },
                                            [this, text] { made(text); });
  if (!runs) made(nullptr);
}

void MetricsPages::made(Page page) {
  page_ = page;
  for (const auto& then : std::exchange(waiting_, {})) then(page);
}

void MetricsPages::write(std::string path, std::chrono::milliseconds every) {
  path_ = std::move(path);
  every_ = every;
  write_one();
}

void MetricsPages::write_one() {
  get([this](const Page& page) {
    if (page == nullptr) return written("no thread can be had");
    auto why = std::make_shared<std::string>();
    const bool runs =
        writes_.background.run([path = path_, page, why] { replace_file(path, *page, *why); },
                               [this, why] { written(*why); });
    if (!runs) written("no thread can be had");
  });
}

void MetricsPages::written(const std::string& why) {
  if (!why.empty() && !failed_) {
    spdlog::warn("writing the metrics to '{}': {}; it is tried again every {} s, without a line",
                 path_, why, std::chrono::duration_cast<std::chrono::seconds>(every_).count());
  }
  if (why.empty() && failed_) spdlog::info("the metrics are written to '{}' again", path_);
  failed_ = !why.empty();
  timer_.expires_after(every_);
  timer_.async_wait([this](ErrorCode error) {
    if (!error) write_one();
  });
}

}  // namespace switchyard::monitor
