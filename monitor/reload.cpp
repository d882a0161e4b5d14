#include "monitor/reload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "monitor/control/kept_choice.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

constexpr std::size_t kMostText = 400;  // of an event; the log has all of it

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "; ") + part;
  return printable(out);
}

void warn(const std::vector<std::string>& remarks) {
  for (const std::string& remark : remarks) spdlog::warn("{}", remark);
}

}  // namespace

Reload::Reload(asio::io_context& io, Monitor& monitor, const Options& options)
    : monitor_(monitor),
      line_(options.line),
      file_(options.config_file),
      signal_(io),
      finished_(io, ::fcntl(background_.finished(), F_DUPFD_CLOEXEC, 3)) {
  warn(options.remarks.nobody);
  warn(options.remarks.unanswered);
  if (file_.empty()) return;
  signal_.add(SIGHUP);
  await_signal();
  await_file();
}

void Reload::await_signal() {
  signal_.async_wait([this](ErrorCode error, int) {
    if (error) return;
    again_ = true;
    read();
    await_signal();
  });
}

void Reload::await_file() {
  finished_.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
    if (error) return;
    background_.finish();
    await_file();
  });
}

void Reload::read() {
  if (reads_ || !std::exchange(again_, false)) return;
  auto found = std::make_shared<Found>();
  reads_ =
      background_.run([line = line_, found] { found->options = understand(line, found->problems); },
                      [this, found] {
                        reads_ = false;
                        apply(*found);
                        read();
                      });
  if (!reads_) refused({"no thread can be had"});
}

void Reload::apply(Found& found) {
  if (!found.options) return refused(found.problems);
  // A name that had an id may have none just now, and its caps would hold for nobody.
  const std::vector<std::string>& unanswered = found.options->remarks.unanswered;
  if (!unanswered.empty()) return refused(unanswered);
  const Settings& had = monitor_.settings();
  const policy::Rules before = had.rules;
  const Means means = had.means;
  const Monitor::Changes changes =
      monitor_.reconfigure(std::move(found.options->settings), steady_now());
  spdlog::set_level(spdlog::level::from_str(had.log_level));
  // A kept choice names the settings beside which it was made.
  if (before != had.rules || means != had.means) keep_choice(monitor_);
  warn(found.options->remarks.nobody);
  std::string text = changes.now.empty() ? "nothing changed" : joined(changes.now);
  if (!changes.later.empty()) text += "; with the next start: " + joined(changes.later);
  say(EventKind::kCommand, fmt::format("{} is read anew: {}", file_, text));
}

void Reload::refused(const std::vector<std::string>& problems) {
  say(EventKind::kCommandRefused,
      fmt::format("{} is not read anew, the settings stay: {}", file_, joined(problems)));
}

void Reload::say(EventKind kind, const std::string& text) {
  if (kind == EventKind::kCommand) {
    spdlog::info("{}", text);
  } else {
    spdlog::error("{}", text);
  }
  const bool longer = text.size() > kMostText;
  monitor_.journal().command(event_of(kind, 0, steady_now()),
                             longer ? text.substr(0, kMostText) + "..." : text);
}

}  // namespace switchyard::monitor
