// HTTP for scrapers on a real socket, against peers that behave and those that don't.
#include "monitor/transport/metrics_http.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "switchyard/fd.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"
#include "tests/support/http.h"

namespace switchyard::monitor::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::HttpPeer;
using test_support::kHangMs;
constexpr char kLocal[] = "127.0.0.1";

// The server on a thread of its own, with a page that the test chooses.
class MetricsServer : public ::testing::Test {
 protected:
  void SetUp() override { begin({}); }
  void begin(MetricsLimits limits) {
    end();
    std::string why;
    // The kernel chooses a port.
    Fd listener = listen_for_metrics({asio::ip::address_v4::loopback(), 0}, why);
    ASSERT_TRUE(listener) << why;
    sockaddr_in address{};
    socklen_t bytes = sizeof(address);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
    io_ = std::make_unique<asio::io_context>(1);
    http_ = std::make_unique<MetricsHttp>(
        *io_, std::move(listener), false,
        [this](auto then) {
          ++asked_;
          then(page_);
        },
        limits);
    thread_ = std::thread([this] { io_->run(); });
  }
  void end() {
    if (io_) io_->stop();
    if (thread_.joinable()) thread_.join();
    http_.reset();
    io_.reset();
  }
  void TearDown() override { end(); }
  std::string ask(const std::string& request) const {
    const HttpPeer peer(kLocal, port_);
    peer.say(request);
    return peer.rest();
  }

  std::uint16_t port_ = 0;
  std::atomic<int> asked_{0};
  MetricsPages::Page page_ = std::make_shared<const std::string>("a 1\n");

 private:
  std::unique_ptr<asio::io_context> io_;
  std::unique_ptr<MetricsHttp> http_;
  std::thread thread_;
};

std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "no answer" : answer.substr(end + 4);
}
bool has(const std::string& answer, const std::string& text) {
  return answer.find(text) != std::string::npos;
}

TEST_F(MetricsServer, GetHasThePageAndHeadItsLength) {
  const std::string get = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(get.rfind("HTTP/1.1 200 OK\r\n", 0), 0u) << get;
  EXPECT_TRUE(has(get, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n")) << get;
  EXPECT_TRUE(has(get, "Content-Length: 4\r\n")) << get;
  EXPECT_EQ(body_of(get), "a 1\n");
  EXPECT_EQ(body_of(ask("GET /metrics?a=b HTTP/1.0\r\n\r\n")), "a 1\n");
  const std::string head = ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(has(head, "Content-Length: 4\r\n")) << head;
  EXPECT_EQ(body_of(head), "");
}

TEST_F(MetricsServer, AllElseIsRefusedAndCostsNoPage) {
  EXPECT_TRUE(has(ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 404 "));
  EXPECT_TRUE(has(ask("GET /metrics/../x HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 404 "));
  const std::string post = ask("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(has(post, "HTTP/1.1 405 ")) << post;
  EXPECT_TRUE(has(post, "Allow: GET, HEAD\r\n")) << post;
  EXPECT_TRUE(has(ask("no such thing\r\n\r\n"), "HTTP/1.1 400 "));
  EXPECT_EQ(asked_, 0);
  page_ = nullptr;
  begin({});
  EXPECT_TRUE(has(ask("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 503 "));
}

TEST_F(MetricsServer, AHeaderWithoutEndIsCutOff) {
  const HttpPeer peer(kLocal, port_);
  peer.say("GET /metrics HTTP/1.1\r\nX: " + std::string(20'000, 'x'));
  const std::string answer = peer.rest();
  EXPECT_TRUE(answer.empty() || has(answer, " 431 ")) << answer;
  EXPECT_EQ(asked_, 0);
}

TEST_F(MetricsServer, WhoeverDoesNotAskInTimeIsHungUpOn) {
  begin({.request = milliseconds(50)});
  const HttpPeer peer(kLocal, port_);
  peer.say("GET /met");
  EXPECT_EQ(peer.rest(), "");
  EXPECT_EQ(body_of(ask("GET /metrics HTTP/1.1\r\n\r\n")), "a 1\n");
}

TEST_F(MetricsServer, WhoeverDoesNotReadIsHungUpOnAndOthersAreServed) {
  page_ = std::make_shared<const std::string>(64u << 20, 'x');
  begin({.answer = milliseconds(100)});
  const HttpPeer slow(kLocal, port_);
  slow.say("GET /metrics HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(slow.readable(kHangMs));
  // Another one is answered, while that one is in the middle of its page.
  EXPECT_TRUE(has(ask("HEAD /metrics HTTP/1.1\r\n\r\n"), " 200 OK"));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(slow.rest().size(), page_->size()) << "it was waited for";
}

TEST_F(MetricsServer, TheOldestSilentPeerMakesRoom) {
  begin({.connections = 2, .accept_every = milliseconds(1), .request = seconds(60)});
  const HttpPeer first(kLocal, port_);
  const HttpPeer second(kLocal, port_);
  EXPECT_EQ(body_of(ask("GET /metrics HTTP/1.1\r\n\r\n")), "a 1\n");
  EXPECT_EQ(first.rest(), "") << "it is hung up on";
  EXPECT_FALSE(second.readable(0)) << "the younger one stays";
}

TEST_F(MetricsServer, APeerThatWasServedTakesNoRoom) {
  begin({.connections = 1, .accept_every = milliseconds(1)});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(body_of(ask("GET /metrics HTTP/1.1\r\n\r\n")), "a 1\n") << i;
  }
}

TEST_F(MetricsServer, APeerThatStillReadsMakesNoRoom) {
  page_ = std::make_shared<const std::string>(64u << 20, 'x');
  begin({.connections = 1, .accept_every = milliseconds(1), .answer = seconds(60)});
  const HttpPeer reads(kLocal, port_);
  reads.say("GET /metrics HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(reads.readable(kHangMs));
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\n\r\n"), "") << "it is hung up on";
  EXPECT_EQ(body_of(reads.rest()).size(), page_->size());
}

TEST_F(MetricsServer, AnEndWhilePeersWaitIsClean) {
  const HttpPeer silent(kLocal, port_);
  const HttpPeer another(kLocal, port_);
  another.say("GET /metrics HTTP/1.1\r\n");
  end();
  EXPECT_EQ(silent.rest(), "");
}

TEST(MetricsPages, APageStaysForAMomentAndIsThenMadeAnew) {
  Rig rig;
  asio::io_context io(1);
  MetricsPages pages(io, rig.monitor);
  const auto get = [&] {
    MetricsPages::Page page;
    pages.get([&page](const MetricsPages::Page& made) { page = made; });
    while (page == nullptr && io.run_one_for(seconds(60)) != 0) continue;
    return page;
  };
  const auto first = get();
  ASSERT_NE(first, nullptr);
  std::this_thread::sleep_for(MetricsPages::kPageStays + milliseconds(1));
  EXPECT_NE(get(), first);
}

TEST(MetricsPages, RequestsWhileOneIsMadeShareItAndAreAnsweredOnce) {
  Rig rig;
  asio::io_context io(1);
  MetricsPages pages(io, rig.monitor);
  std::vector<MetricsPages::Page> given;
  for (int i = 0; i < 3; ++i) {
    pages.get([&given](const MetricsPages::Page& page) { given.push_back(page); });
  }
  while (given.size() < 3 && io.run_one_for(seconds(60)) != 0) continue;
  io.run_for(milliseconds(20));
  ASSERT_EQ(given.size(), 3u);
  EXPECT_NE(given[0], nullptr);
  EXPECT_EQ(given[0], given[1]);
  EXPECT_EQ(given[0], given[2]);
  std::this_thread::sleep_for(MetricsPages::kPageStays + milliseconds(1));
  pages.get([&given](const MetricsPages::Page& page) { given.push_back(page); });
  while (given.size() < 4 && io.run_one_for(seconds(60)) != 0) continue;
  EXPECT_EQ(given.size(), 4u) << "nobody is answered again";
}

// On a slow machine a page may be old when it is asked for again, but not each time.
TEST(MetricsPages, AFreshPageIsGivenAtOnce) {
  Rig rig;
  asio::io_context io(1);
  MetricsPages pages(io, rig.monitor);
  bool at_once = false;
  for (int i = 0; i < 100 && !at_once; ++i) {
    MetricsPages::Page made, again;
    pages.get([&made](const MetricsPages::Page& page) { made = page; });
    while (made == nullptr && io.run_one_for(seconds(60)) != 0) continue;
    pages.get([&again](const MetricsPages::Page& page) { again = page; });
    at_once = made != nullptr && made == again;
    while (again == nullptr && io.run_one_for(seconds(60)) != 0) continue;
  }
  EXPECT_TRUE(at_once);
}

TEST(MetricsPages, AFileThatCannotBeWrittenIsToldOnceAndWrittenLater) {
  char name[] = "/tmp/switchyard-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string base(name), file = base + "/later/metrics.prom";
  const LogLines log;
  spdlog::set_level(spdlog::level::info);
  Rig rig;
  asio::io_context io(1);
  MetricsPages pages(io, rig.monitor);
  pages.write(file, milliseconds(10));
  const auto becomes = [&](const auto& so) {
    for (int left = 6000; left > 0 && !so(); --left) io.run_for(milliseconds(10));
    return so();
  };
  EXPECT_TRUE(becomes([&] { return log.count("writing the metrics to") != 0; }));
  io.run_for(milliseconds(200));
  std::filesystem::create_directory(base + "/later");
  EXPECT_TRUE(becomes([&] { return log.count("are written to") != 0; }));
  EXPECT_GT(std::filesystem::file_size(file), 0u);
  io.run_for(milliseconds(200));
  EXPECT_EQ(log.count("writing the metrics to"), 1u);
  EXPECT_EQ(log.count("are written to"), 1u);
  std::filesystem::remove(file);
  EXPECT_TRUE(becomes([&] { return std::filesystem::exists(file); })) << "each time anew";
  spdlog::set_level(spdlog::level::off);
  std::filesystem::remove_all(base);
}

TEST(MetricsAddress, IsAnAddressAndAPortOrAPortOfThisMachine) {
  const auto text = [](const std::string& said) {
    const auto parsed = parse_metrics_address(said);
    return parsed ? metrics_address_text(*parsed) : "";
  };
  EXPECT_EQ(text("127.0.0.1:9835"), "127.0.0.1:9835");
  EXPECT_EQ(text("9835"), "127.0.0.1:9835") << "others are asked for by their address";
  EXPECT_EQ(text("0.0.0.0:80"), "0.0.0.0:80");
  EXPECT_EQ(text("[::1]:9835"), "[::1]:9835");
  EXPECT_EQ(text("[127.0.0.1]:80"), "127.0.0.1:80") << "for texts that are put together";
  for (const char* bad :
       {"", ":", ":9835", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "::1:9835", "127.0.0.1:65536",
        "localhost:9835", "127.0.0.1:98x", "[]:1", "1.2.3:4"}) {
    EXPECT_EQ(text(bad), "") << bad;
  }
}

TEST(MetricsAddress, ThatCannotBeHadIsSaidWithWhatToDo) {
  std::string why;
  const Fd first = listen_for_metrics({asio::ip::address_v4::loopback(), 0}, why);
  ASSERT_TRUE(first) << why;
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  ::getsockname(first.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  EXPECT_FALSE(
      listen_for_metrics({asio::ip::address_v4::loopback(), ntohs(address.sin_port)}, why));
  EXPECT_TRUE(has(why, "Address already in use; another program has the port")) << why;
  EXPECT_FALSE(listen_for_metrics({asio::ip::make_address("192.0.2.1"), 9835}, why));
  EXPECT_TRUE(has(why, "192.0.2.1:9835: Cannot assign requested address; this machine has no"))
      << why;
}

}  // namespace
}  // namespace switchyard::monitor::test
