#include "tools/top/screen.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tools/base/output.h"
#include "tools/base/terminal.h"
// Its macros have short names, so it comes last; and this file is compiled by itself.
#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <ncursesw/curses.h>

namespace switchyard::tools::top {
namespace {

volatile sig_atomic_t g_end = 0;
volatile sig_atomic_t g_stop = 0;
volatile sig_atomic_t g_continued = 0;

constexpr int kEnds[] = {SIGINT, SIGTERM, SIGHUP};

// Whether the C library writes UTF-8. A locale that is named need not be installed.
bool take_locale() {
  ::setlocale(LC_CTYPE, "");
  const auto writes_utf8 = [] { return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0; };
  if (!utf8_locale() || writes_utf8()) return utf8_locale();
  return ::setlocale(LC_CTYPE, "C.UTF-8") != nullptr && writes_utf8();
}

attr_t attribute_of(Tone tone, bool colours) {
  switch (tone) {
    case Tone::kBold:
      return A_BOLD;
    case Tone::kFaint:
      return A_DIM;
    case Tone::kGood:
      return colours ? COLOR_PAIR(1) : A_NORMAL;
    case Tone::kWarning:
      return colours ? COLOR_PAIR(2) : A_NORMAL;
    case Tone::kBad:
      return colours ? COLOR_PAIR(3) : A_BOLD;
    case Tone::kPlain:
      break;
  }
  return A_NORMAL;
}

int translated(int key) {
  switch (key) {
    case KEY_UP:
      return kUp;
    case KEY_DOWN:
      return kDown;
    case KEY_PPAGE:
      return kPageUp;
    case KEY_NPAGE:
      return kPageDown;
    case KEY_HOME:
      return kHome;
    case KEY_END:
      return kLast;
    case KEY_RESIZE:
      return Screen::kRedraw;
    case 0x0c:  // Ctrl-L
      ::clearok(::curscr, TRUE);
      return Screen::kRedraw;
    default:
      return key;
  }
}

sigset_t set_of(std::initializer_list<int> numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) ::sigaddset(&set, number);
  return set;
}

}  // namespace

Result<std::unique_ptr<Screen>> Screen::open() {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
    return Error{kFailure, "stdin and stdout are no terminal"};
  }
  std::unique_ptr<Screen> screen(new Screen);
  if (screen->opened_) return screen;
  const char* name = std::getenv("TERM");
  return Error{kFailure, fmt::format("the terminal '{}' (TERM) is unknown or too plain",
                                     name != nullptr ? name : "")};
}

Screen::Screen() {
  const sigset_t blocked = set_of({SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH});
  ::sigprocmask(SIG_BLOCK, &blocked, &before_);
  g_end = 0;
  g_stop = 0;
  g_continued = 0;
  for (const int number : kEnds) handle(number, [](int n) { g_end = n; });
  handle(SIGTSTP, [](int) { g_stop = 1; });
  handle(SIGCONT, [](int) { g_continued = 1; });
  utf8_ = take_locale();
  // A terminal that is resized has other sizes than LINES and COLUMNS say.
  ::use_tioctl(TRUE);
  if (::newterm(nullptr, stdout, stdin) == nullptr) return;
  starts_ = true;
  const char* moves = ::tigetstr("cup");
  if (moves == nullptr || moves == reinterpret_cast<const char*>(-1)) return;
  opened_ = true;
  ::cbreak();
  ::noecho();
  ::nodelay(::stdscr, TRUE);
  ::keypad(::stdscr, TRUE);
  ::set_escdelay(50);
  ::curs_set(0);
  if (colours(stdout) && ::has_colors() && ::start_color() == OK) {
    ::use_default_colors();
    ::init_pair(1, COLOR_GREEN, -1);
    ::init_pair(2, COLOR_YELLOW, -1);
    ::init_pair(3, COLOR_RED, -1);
    colours_ = true;
  }
}

Screen::~Screen() {
  if (starts_) ::endwin();
  for (const Kept& kept : kept_) ::sigaction(kept.number, &kept.action, nullptr);
  // The one that asked for the end is the caller's to repeat.
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

// One that is ignored stays so: that of a shell in the background, or of nohup.
void Screen::handle(int number, void (*handler)(int)) {
  struct sigaction now {};
  now.sa_handler = handler;
  ::sigemptyset(&now.sa_mask);
  Kept kept{number, {}};
  ::sigaction(number, &now, &kept.action);
  if (kept.action.sa_handler == SIG_IGN) ::sigaction(number, &kept.action, nullptr);
  kept_.push_back(kept);
}

Size Screen::size() const {
  return {static_cast<std::size_t>(std::max(::getmaxx(::stdscr), 1)),
          static_cast<std::size_t>(std::max(::getmaxy(::stdscr), 1)), utf8_};
}

void Screen::show(const std::vector<Line>& lines) {
  ::werase(::stdscr);
  for (std::size_t y = 0; y < lines.size(); ++y) {
    ::wmove(::stdscr, static_cast<int>(y), 0);
    const attr_t selected = lines[y].selected ? A_REVERSE : A_NORMAL;
    for (const Table::Cell& piece : lines[y].pieces) {
      ::wattrset(::stdscr, static_cast<int>(attribute_of(piece.tone, colours_) | selected));
      ::waddnstr(::stdscr, piece.text.c_str(), static_cast<int>(piece.text.size()));
    }
    if (lines[y].selected) {
      ::mvwchgat(::stdscr, static_cast<int>(y), 0, -1, A_REVERSE, 0, nullptr);
    }
    ::wattrset(::stdscr, A_NORMAL);
  }
  ::wrefresh(::stdscr);
}

void Screen::stop() {
  ::endwin();
  struct sigaction by_default {
  }, ours{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &by_default, &ours);
  const sigset_t one = set_of({SIGTSTP});
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);  // here it stands until it is continued
  ::sigprocmask(SIG_BLOCK, &one, nullptr);
  ::sigaction(SIGTSTP, &ours, nullptr);
  g_stop = 0;
  g_continued = 1;
}

int Screen::key(std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  bool readable = false;
  for (;;) {
    const int key = ::wgetch(::stdscr);
    if (key != ERR) return translated(key);
    // There is something to be read, and it is no key: the terminal has gone.
    if (g_end != 0 || readable) return kAskedToEnd;
    if (g_stop != 0) stop();
    if (g_continued != 0) {
      g_continued = 0;
      // A shell may have set the terminal for itself, and its size may be another one.
      winsize now{};
      ::reset_prog_mode();
      if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) == 0 && now.ws_row > 0 && now.ws_col > 0) {
        ::resizeterm(now.ws_row, now.ws_col);
      }
      ::clearok(::curscr, TRUE);
      return kRedraw;
    }
    const auto left = std::max(deadline - Clock::now(), Clock::duration{0});
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec limit{whole.count(), std::chrono::nanoseconds(left - whole).count()};
    pollfd in{STDIN_FILENO, POLLIN, 0};
    const int ready = ::ppoll(&in, 1, &limit, &before_);
    if (ready == 0) return kNoKey;
    readable = ready > 0;
  }
}

int Screen::end_signal() { return g_end; }

}  // namespace switchyard::tools::top
