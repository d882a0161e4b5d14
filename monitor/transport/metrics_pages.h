// The pages of metrics: copied from the monitor on the loop, and rendered on another thread.
//
// Concept. Scrapers that come within kPageStays have one page, and so have those that come while
// one is made. So the loop copies at most five snapshots a second, whoever asks.
//
// A file for node_exporter is written by a thread of its own: a disk that stands still keeps no
// scraper waiting. Meanwhile nothing more is written, so one page waits for it at most.
//
// Threading: the loop's one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "monitor/export/collector.h"
#include "monitor/platform/asio.h"
#include "monitor/platform/background.h"

namespace switchyard::monitor {

class MetricsPages {
 public:
  using Page = std::shared_ptr<const std::string>;
  static constexpr std::chrono::milliseconds kPageStays{200};
  static constexpr std::chrono::seconds kFileEvery{15};

  MetricsPages(asio::io_context& io, Monitor& monitor);

  // Calls `then` once, at once or later. With null where no page can be made.
  void get(std::function<void(Page)> then);
  // From now on, and every `every`.
  void write(std::string path, std::chrono::milliseconds every = kFileEvery);

 private:
  struct Worker {
    explicit Worker(asio::io_context& io);
    void listen();
    Background background;
    asio::posix::stream_descriptor finished;
  };
  void made(Page page);
  void write_one();
  void written(const std::string& why);

  metrics::Collector collector_;
  Worker renders_, writes_;
  asio::steady_timer timer_;
  Page page_;
  Time made_at_{0};
  std::vector<std::function<void(Page)>> waiting_;
  std::string path_;
  std::chrono::milliseconds every_{0};
  bool failed_ = false;  // the last writing did, and the log says so
};

}  // namespace switchyard::monitor
