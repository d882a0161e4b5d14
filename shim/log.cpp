#include "shim/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "shim/no_cancel.h"
#include "shim/own_fd.h"

namespace switchyard::shim {
namespace {

// Nobody asked for a log: what a user must know goes to stderr all the same, each kind of it once.
struct Sink {
  Level level = Level::kWarn;
  bool asked_for = false;
  bool has_file = false;  // else it is stderr
  OwnFd file;
  OpenFile error_file;  // stderr, as it was at the first line
};

constexpr int kKinds = 64;

struct State {
  Sink sink;
  const char* mistyped = nullptr;  // what SWITCHYARD_LOG says instead of a level
  Unopened unopened;
  pthread_once_t opened = PTHREAD_ONCE_INIT;
  // The kinds that were said, by their format, whose address is the place in the source.
  std::atomic<const char*> said[kKinds] = {};
};
constinit State g_state;

constexpr const char* kNames[] = {"off", "error", "warn", "info", "debug"};

// False: it cannot be opened.
bool open_file(const char* path) {
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    g_state.unopened = {path, errno};
    return false;
  }
  g_state.sink.has_file = true;
  g_state.sink.file.adopt(fd);
  return true;
}

// False: there is none of that name.
bool find_level(const char* name, size_t length, Level& out) {
  for (int i = 0; i <= static_cast<int>(Level::kDebug); ++i) {
    if (::strlen(kNames[i]) != length || ::strncmp(kNames[i], name, length) != 0) continue;
    out = static_cast<Level>(i);
    return true;
  }
  return false;
}

// Nobody asked for more than what a user must know, or it cannot go where it was to go.
void use_stderr() {
  Level& level = g_state.sink.level;
  if (level > Level::kWarn) level = Level::kWarn;
  g_state.sink.error_file.look(STDERR_FILENO);
}

void choose_sink() {
  const char* wanted = ::getenv("SWITCHYARD_LOG");
  if (wanted == nullptr || wanted[0] == '\0') return use_stderr();
  const size_t length = ::strcspn(wanted, ":");
  if (!find_level(wanted, length, g_state.sink.level)) {
    g_state.mistyped = wanted;
    return use_stderr();
  }
  const char* path = wanted + length + (wanted[length] == ':' ? 1 : 0);
  if (path[0] != '\0' && !open_file(path)) return use_stderr();
  g_state.sink.asked_for = true;
}

void open_sink() {
  const int saved = errno;
  choose_sink();
  errno = saved;
}

// All numbers belong to the program: it may close ours and open a file of its own there (-1 then).
// A user who asked for lines on stderr gets them wherever the program redirects it.
int descriptor() {
  if (g_state.sink.has_file) return g_state.sink.file.get();
  const bool is_stderr = g_state.sink.asked_for ||
                         g_state.sink.error_file.match(STDERR_FILENO) != OpenFile::Match::kOther;
  return is_stderr ? STDERR_FILENO : -1;
}

// False: this kind was said before, or there are more kinds than we can remember.
bool first_of_its_kind(const char* format) {
  for (std::atomic<const char*>& said : g_state.said) {
    const char* expected = nullptr;
    if (said.compare_exchange_strong(expected, format, std::memory_order_relaxed)) return true;
    if (expected == format) return false;
  }
  return false;
}

int write_prefix(Level level, char* line, size_t size) {
  if (!g_state.sink.asked_for) return ::snprintf(line, size, "switchyard[%d]: ", ::getpid());
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return ::snprintf(line, size,
                    "%lld.%06ld switchyard[%d] %s: ", static_cast<long long>(now.tv_sec),
                    now.tv_nsec / 1000, ::getpid(), kNames[static_cast<int>(level)]);
}

// A process may be called anything, and a monitor may say anything.
void make_printable(char* text, int size) {
  for (int i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) text[i] = '?';
  }
}

void write_line(Level level, const char* format, va_list args) {
  if (!g_state.sink.asked_for && !first_of_its_kind(format)) return;
  const NoCancel whole;
  const int saved = errno;  // a log line must not change what the application sees
  char line[1024];
  int used = write_prefix(level, line, sizeof(line));
  const int more = ::vsnprintf(line + used, sizeof(line) - static_cast<size_t>(used), format, args);
  if (more > 0) used += more;
  if (used > static_cast<int>(sizeof(line)) - 2) used = sizeof(line) - 2;
  make_printable(line, used);
  line[used++] = '\n';
  const int fd = descriptor();
  if (fd >= 0) [[maybe_unused]]
    const ssize_t written = ::write(fd, line, static_cast<size_t>(used));
  errno = saved;
}

}  // namespace

const char* mistyped_level() {
  ::pthread_once(&g_state.opened, open_sink);
  return g_state.mistyped;
}

Unopened unopened_log() {
  ::pthread_once(&g_state.opened, open_sink);
  return g_state.unopened;
}

bool log_enabled(Level level) {
  ::pthread_once(&g_state.opened, open_sink);
  return level <= g_state.sink.level && level != Level::kOff;
}

void log_line(Level level, const char* format, ...) {
  if (!log_enabled(level)) return;
  va_list args;
  va_start(args, format);
  write_line(level, format, args);
  va_end(args);
}

void log_once(Once& once, Level level, const char* format, ...) {
  // Any thread may come to the place.
  if (!log_enabled(level) || std::atomic_ref(once.said).exchange(true, std::memory_order_relaxed)) {
    return;
  }
  va_list args;
  va_start(args, format);
  write_line(level, format, args);
  va_end(args);
}

}  // namespace switchyard::shim
