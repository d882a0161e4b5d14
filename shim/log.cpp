#include "shim/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace switchyard::shim {
namespace {

struct Sink {
  Level level = Level::kOff;
  int fd = -1;
};

Sink g_sink;
pthread_once_t g_opened = PTHREAD_ONCE_INIT;

constexpr const char* kNames[] = {"off", "error", "warn", "info", "debug"};

void open_sink() {
  const char* wanted = ::getenv("SWITCHYARD_LOG");
  if (wanted == nullptr) return;
  const char* colon = ::strchr(wanted, ':');
  const size_t length = colon != nullptr ? static_cast<size_t>(colon - wanted) : ::strlen(wanted);
  for (int i = 0; i <= static_cast<int>(Level::kDebug); ++i) {
    if (::strlen(kNames[i]) == length && ::strncmp(kNames[i], wanted, length) == 0) {
      g_sink.level = static_cast<Level>(i);
    }
  }
  g_sink.fd = STDERR_FILENO;
  if (colon != nullptr && colon[1] != '\0') {
    g_sink.fd = ::open(colon + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (g_sink.fd < 0) g_sink.level = Level::kOff;
  }
}

void write_line(Level level, const char* format, va_list args) {
  const int saved = errno;  // a log line must not change what the application sees
  char line[1024];
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  int used = ::snprintf(line, sizeof(line),
                        "%lld.%06ld switchyard[%d] %s: ", static_cast<long long>(now.tv_sec),
                        now.tv_nsec / 1000, ::getpid(), kNames[static_cast<int>(level)]);
  const int more = ::vsnprintf(line + used, sizeof(line) - static_cast<size_t>(used), format, args);
  if (more > 0) used += more;
  if (used > static_cast<int>(sizeof(line)) - 2) used = sizeof(line) - 2;
  line[used++] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(g_sink.fd, line, static_cast<size_t>(used));
  errno = saved;
}

}  // namespace

bool log_enabled(Level level) {
  ::pthread_once(&g_opened, open_sink);
  return level <= g_sink.level && level != Level::kOff;
}

void log_line(Level level, const char* format, ...) {
  if (!log_enabled(level)) return;
  va_list args;
  va_start(args, format);
  write_line(level, format, args);
  va_end(args);
}

void log_once(Once& once, Level level, const char* format, ...) {
  if (once.said || !log_enabled(level)) return;
  once.said = true;
  va_list args;
  va_start(args, format);
  write_line(level, format, args);
  va_end(args);
}

}  // namespace switchyard::shim
