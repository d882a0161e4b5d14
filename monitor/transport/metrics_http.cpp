#include "monitor/transport/metrics_http.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <variant>

namespace switchyard::monitor {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;

constexpr std::size_t kHeaderBytes = 8192;
constexpr int kSendBytes = 64 * 1024;  // that the kernel takes at a time
constexpr int kBacklog = 16;
constexpr char kLoopback[] = "127.0.0.1";
constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";

const char* what_to_do(int error) {
  switch (error) {
    case EADDRINUSE:
      return "another program has the port: choose another one";
    case EADDRNOTAVAIL:
      return "this machine has no such address: `ip address` lists those that it has";
    case EACCES:
      return "choose a port from 1024 on, or start it as root";
    default:
      return "choose another address";
  }
}

std::string_view path_of(std::string_view target) { return target.substr(0, target.find('?')); }

}  // namespace

std::optional<Tcp::endpoint> parse_metrics_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string address = colon == std::string::npos ? kLoopback : text.substr(0, colon);
  const bool brackets = address.size() > 2 && address.front() == '[' && address.back() == ']';
  if (brackets) address = address.substr(1, address.size() - 2);
  std::uint16_t port = 0;
  const char* const begin = text.data() + (colon == std::string::npos ? 0 : colon + 1);
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(begin, end, port);
  ErrorCode error;
  const auto parsed = asio::ip::make_address(address, error);
  // An IPv6 address without them might lack its port.
  if (error || (parsed.is_v6() && !brackets) || read.ec != std::errc() || read.ptr != end ||
      port == 0) {
    return std::nullopt;
  }
  return Tcp::endpoint(parsed, port);
}

std::string metrics_address_text(const Tcp::endpoint& at) {
  const std::string address = at.address().to_string();
  return (at.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(at.port());
}

Fd listen_for_metrics(const Tcp::endpoint& at, std::string& why) {
  const int family = at.protocol().family();
  Fd out(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // The connections of the monitor before may linger.
  if (out && ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      ::bind(out.get(), at.data(), static_cast<socklen_t>(at.size())) == 0 &&
      ::listen(out.get(), kBacklog) == 0) {
    return out;
  }
  const int error = errno;  // the text of the address changes it
  why = fmt::format("cannot listen for --metrics at {}: {}; {}", metrics_address_text(at),
                    std::strerror(error), what_to_do(error));
  return {};
}

class MetricsHttp::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Tcp::socket socket, const Get& get, const MetricsLimits& limits)
      : stream_(std::move(socket)), buffer_(kHeaderBytes), get_(get), limits_(limits) {
    parser_.header_limit(kHeaderBytes);
    parser_.body_limit(0);
    ErrorCode ignored;
    stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBytes), ignored);
  }

  void read() {
    stream_.expires_after(limits_.request);
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](ErrorCode error, std::size_t) { self->arrived(error); });
  }
  bool asked() const { return asked_; }
  void close() { stream_.close(); }

 private:
  void arrived(ErrorCode error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return refuse(http::status::request_header_fields_too_large);
    }
    const bool gone = error == http::error::end_of_stream || error == http::error::partial_message;
    const bool malformed =
        error.category() == http::make_error_code(http::error::bad_method).category();
    if (malformed && !gone) return refuse(http::status::bad_request);
    if (error) return close();
    const auto& request = parser_.get();
    const std::string_view target(request.target().data(), request.target().size());
    if (path_of(target) != "/metrics") return refuse(http::status::not_found);
    head_ = request.method() == http::verb::head;
    if (!head_ && request.method() != http::verb::get) {
      return refuse(http::status::method_not_allowed);
    }
    asked_ = true;
    stream_.expires_after(limits_.answer);
    get_([self = shared_from_this()](const MetricsPages::Page& page) { self->serve(page); });
  }

  void serve(const MetricsPages::Page& page) {
    if (page == nullptr) return refuse(http::status::service_unavailable);
    page_ = page;
    if (head_) {
      auto& answer = answer_.emplace<http::response<http::empty_body>>(http::status::ok, 11);
      answer.content_length(page->size());
      return write(answer);
    }
    auto& answer =
        answer_.emplace<http::response<http::span_body<const char>>>(http::status::ok, 11);
    answer.body() = {page->data(), page->size()};
    answer.content_length(page->size());
    write(answer);
  }

  void refuse(http::status status) {
    asked_ = true;
    auto& answer = answer_.emplace<http::response<http::empty_body>>(status, 11);
    if (status == http::status::method_not_allowed) answer.set(http::field::allow, "GET, HEAD");
    answer.content_length(0);
    write(answer);
  }

  template <typename Answer>
  void write(Answer& answer) {
    answer.set(http::field::content_type, kTextFormat);
    answer.keep_alive(false);
    stream_.expires_after(limits_.answer);
    http::async_write(stream_, answer, [self = shared_from_this()](ErrorCode, std::size_t) {
      ErrorCode ignored;
      self->stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
      self->close();
    });
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  Get get_;
  MetricsLimits limits_;
  MetricsPages::Page page_;  // what the answer is a view of
  std::variant<std::monostate, http::response<http::empty_body>,
               http::response<http::span_body<const char>>>
      answer_;
  bool asked_ = false;
  bool head_ = false;
};

MetricsHttp::MetricsHttp(asio::io_context& io, Fd listener, bool v6, Get get, MetricsLimits limits)
    : acceptor_(io), pause_(io), get_(std::move(get)), limits_(limits) {
  acceptor_.assign(v6 ? Tcp::v6() : Tcp::v4(), listener.release());
  accept();
}

MetricsHttp::~MetricsHttp() = default;

void MetricsHttp::accept() {
  acceptor_.async_accept([this](ErrorCode error, Tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) admit(std::move(socket));
    // A peer that connects without end costs the loop so much and no more.
    pause_.expires_after(limits_.accept_every);
    pause_.async_wait([this](ErrorCode paused) {
      if (!paused) accept();
    });
  });
}

void MetricsHttp::admit(Tcp::socket socket) {
  connections_.remove_if([](const auto& each) { return each.expired(); });
  if (connections_.size() >= limits_.connections) {
    const auto silent =
        std::find_if(connections_.begin(), connections_.end(), [](const auto& each) {
          const auto connection = each.lock();
          return connection != nullptr && !connection->asked();
        });
    if (silent == connections_.end()) return;  // it is hung up on
    if (const auto connection = silent->lock()) connection->close();
    connections_.erase(silent);
  }
  const auto connection = std::make_shared<Connection>(std::move(socket), get_, limits_);
  connections_.push_back(connection);
  connection->read();
}

}  // namespace switchyard::monitor
