// What the monitor writes into its log while one of these lives.
//
// Threading: one thread.
#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>

namespace switchyard::monitor::test {

class LogLines {
 public:
  LogLines() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::move(sink)));
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  ~LogLines() { spdlog::set_default_logger(before_); }

  // How often the log has this text.
  std::size_t count(const std::string& wanted) const {
    const std::string all = text_.str();
    std::size_t found = 0;
    for (auto at = all.find(wanted); at != std::string::npos; at = all.find(wanted, at + 1)) {
      ++found;
    }
    return found;
  }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

}  // namespace switchyard::monitor::test
