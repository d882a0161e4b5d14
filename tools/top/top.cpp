#include "tools/top/top.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/base/terminal.h"
#include "tools/base/unserved.h"
#include "tools/ps/about.h"
#include "tools/top/frame.h"
#include "tools/top/model.h"
#include "tools/top/orders.h"
#include "tools/top/screen.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr char kExamples[] = R"(Examples:
  switchyard top
  switchyard top --interval 5s
  switchyard top 'train-*' --gpu 0
  switchyard top --once
      one frame as text, for a chat or a ticket
  switchyard top --json | jq '.status.gpus[].power_watts'

Above is a line for each GPU: index, name, utilisation, memory in use, temperature, power; '-': NVML
does not tell. Below are the jobs in the columns of `switchyard ps`. STATE says why a job waits.
Beside GPU% and MEM/QUOTA are the last samples as bars, newest last; those of memory are of the
quota, else of the GPUs' memory. A name with '~' is a process that no job has.
NAME is a job's name or id, the beginning of an id, a PID, or a pattern. A row must fit all options;
'unmanaged' is the state of a process that no job has.

Keys:
  arrows, Page Up, Page Down, Home, End
            select a row; below it stands in full
  p, r      pause or resume the job, as `switchyard pause` and `resume` do
  +, -      raise or lower its priority, as `switchyard set --priority` does
  k         end it: this program sends SIGTERM to its processes, with the rights of the caller
  s         sort by GPU%, memory, age or name
  q         quit; ? shows the keys
Each change is asked for, and only y makes it.

Without a terminal that can place its cursor there is one frame, or with --interval one after the
other. While the monitor is away, the last listing stays, and a line says so.
Exit status: 0, also without a monitor; 2 a bad value or a socket path that is too long, 3 nothing
listens at a socket that was named or left behind, 5 that monitor is not to be trusted, 7 it does
not answer.)";

struct Options {
  Selection selection;
  std::optional<std::string> interval;
  bool once = false, json = false;
};

constexpr char kNoMonitor[] =
    "no monitor runs here; the next `switchyard run -- COMMAND` starts one";

Result<top::Look> look_at_all() {
  top::Look out;
  auto monitor = MonitorClient::connect_reader();
  auto ps = monitor ? monitor->ask({{"op", "ps"}}, MonitorClient::kSilentLimit) : monitor.error();
  if (!ps && !is_unserved(ps.error())) return ps.error();
  if (!ps) {
    std::string problem;
    out.ps = list_unserved();
    out.status = list_gpus_unserved(problem);
    out.notice = problem.empty() ? kNoMonitor : fmt::format("no GPU: {}", problem);
    return out;
  }
  auto status = monitor->ask({{"op", "status"}}, MonitorClient::kSilentLimit);
  if (!status) return status.error();
  out.ps = std::move(*ps);
  out.status = std::move(*status);
  const auto about = out.ps.find("monitor");
  if (about != out.ps.end() && truth_of(*about, "observes")) {
    out.notice = "no monitor manages jobs here; this one only observes";
  }
  return out;
}

// `begins`: a word that names nobody is an error. Later its job may have ended.
Result<top::Look> look(const Options& options, bool begins = false) {
  auto out = look_at_all();
  if (!out || options.selection.means_all()) return out;
  const auto refused = top::keep_selected(*out, options.selection);
  if (refused && begins) return *refused;
  return out;
}

void print_both(top::Look seen) {
  add_about(seen.ps, std::chrono::system_clock::now());
  for (json* listing : {&seen.ps, &seen.status}) {
    listing->erase("ok");
    (*listing)["schema_version"] = kSchemaVersion;
  }
  print_json({{"ps", std::move(seen.ps)}, {"status", std::move(seen.status)}});
}

// `again`: after that time there is another one. Zero: there is not.
int print_frames(const Options& options, top::Look seen, Milliseconds again) {
  top::Model model;
  for (;;) {
    if (!seen.notice.empty()) complain(seen.notice);
    model.take(std::move(seen), Clock::now());
    fmt::print("{}", top::draw_once(model, terminal_columns(), utf8_locale()));
    if (!output_written()) return kFailure;
    if (options.once || again == Milliseconds{0}) return kOk;
    std::this_thread::sleep_for(again);
    fmt::print("\n");
    auto next = look(options);
    if (!next) return fail(next.error());
    seen = std::move(*next);
  }
}

// An answer that has come is shown so soon.
constexpr Milliseconds kAnswerShown{50};

// Until a key or a signal ends it.
void show_on(const Options& options, top::Screen& screen, top::UnderWay& order_under_way,
             top::Look seen, Milliseconds interval) {
  top::Model model;
  model.take(std::move(seen), Clock::now());
  auto due = Clock::now() + interval;
  for (;;) {
    if (const auto answer = order_under_way.finished()) {
      model.say(*answer);
      due = Clock::now();
    }
    screen.show(top::draw(model, screen.size(), Clock::now()));
    auto left = std::chrono::ceil<Milliseconds>(due - Clock::now());
    if (order_under_way.busy()) left = std::min(left, kAnswerShown);
    const int key = screen.key(std::max(left, Milliseconds{0}));
    if (key == top::Screen::kAskedToEnd) return;
    if (key == top::Screen::kNoKey) {
      if (Clock::now() < due) continue;
      auto next = look(options);
      next ? model.take(std::move(*next), Clock::now()) : model.miss(next.error().text);
      due = Clock::now() + interval;
    } else if (key != top::Screen::kRedraw) {
      const auto order = model.press(key, top::page_of(model, screen.size()));
      if (!order) continue;
      if (order->what == top::Order::What::kQuit) return;
      if (order_under_way.busy()) {
        model.say("not done: the last order has no answer yet");
        continue;
      }
      model.say(text_of_order(*order) + " ...");
      order_under_way.begin(*order);
    }
  }
}

int show(const Options& options, top::Look seen, Milliseconds interval,
         std::unique_ptr<top::Screen> screen) {
  top::UnderWay order;  // the terminal is given back before its answer is waited for
  show_on(options, *screen, order, std::move(seen), interval);
  screen.reset();  // the terminal is as it was
  if (const int number = top::Screen::end_signal(); number != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  return kOk;
}

int run_top(const Options& options) {
  Milliseconds interval{1000};
  if (options.interval) {
    const auto given = parse_seconds(*options.interval);
    if (!given || given->count() <= 0) {
      return fail(bad_value("--interval", *options.interval, "a time such as 1s or 500ms"));
    }
    interval = std::max(Milliseconds{1}, std::chrono::duration_cast<Milliseconds>(*given));
  }
  auto seen = look(options, true);
  if (!seen) return fail(seen.error());
  if (options.json) {
    print_both(std::move(*seen));
    return kOk;
  }
  if (options.once) return print_frames(options, std::move(*seen), interval);
  auto screen = top::Screen::open();
  if (screen) return show(options, std::move(*seen), interval, std::move(*screen));
  // A terminal that is too plain is told why; a pipe knows.
  if (::isatty(STDOUT_FILENO) == 1) complain(screen.error().text + ": this is text");
  return print_frames(options, std::move(*seen), options.interval ? interval : Milliseconds{0});
}

}  // namespace

void add_top(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub =
      line.add("top", "show GPUs and jobs on the whole screen, and change jobs by keys", kExamples);
  take_jobs_or_all(sub, options->selection);
  sub.flag("--once", options->once, "print one frame as text")
      .option("--interval", "TIME", options->interval, "look again after so long (1s)")
      .monitor_options(options->json, "print what is seen as one JSON document")
      .acts([options] { return run_top(*options); });
}

}  // namespace switchyard::tools
