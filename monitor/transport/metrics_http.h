// HTTP for scrapers: GET and HEAD of /metrics, and nothing else.
//
// Concept. A connection is one request and its answer. Bounded are connections at a time and a
// second, bytes of a request, and the time for each of its two halves. When there are as many
// connections as may be, the oldest that has not sent its request makes room. Pages are shared, and
// copied only into the kernel, a part at a time.
//
// Threading: the loop's one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "monitor/platform/asio.h"
#include "monitor/transport/metrics_pages.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

struct MetricsLimits {
  std::size_t connections = 8;
  std::chrono::milliseconds accept_every{20};
  std::chrono::milliseconds request{5000};
  std::chrono::milliseconds answer{10000};
};

// "127.0.0.1:9835", "[::1]:9835", or a port alone, which is one of 127.0.0.1.
std::optional<asio::ip::tcp::endpoint> parse_metrics_address(const std::string& text);
std::string metrics_address_text(const asio::ip::tcp::endpoint& at);
// Empty, and `why` says why, where nobody can listen there.
Fd listen_for_metrics(const asio::ip::tcp::endpoint& at, std::string& why);

class MetricsHttp {
 public:
  using Get = std::function<void(std::function<void(MetricsPages::Page)>)>;
  // `listener`: of listen_for_metrics(). `get`: as MetricsPages::get() is.
  MetricsHttp(asio::io_context& io, Fd listener, bool v6, Get get, MetricsLimits limits = {});
  ~MetricsHttp();

 private:
  class Connection;
  void accept();
  void admit(asio::ip::tcp::socket socket);

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  Get get_;
  MetricsLimits limits_;
  std::list<std::weak_ptr<Connection>> connections_;  // the oldest first
};

}  // namespace switchyard::monitor
