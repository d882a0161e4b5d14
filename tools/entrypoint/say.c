#include "tools/entrypoint/say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool silent(void) {
  const char* level = getenv("SWITCHYARD_LOG");
  return level != NULL && strcspn(level, ":") == 3 && strncmp(level, "off", 3) == 0;
}

void say(const char* format, ...) {
  if (silent()) return;
  char line[2048] = "switchyard-entrypoint: ";
  const size_t begin = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + begin, sizeof(line) - begin - 1, format, arguments);
  va_end(arguments);
  size_t length = strlen(line);
  // An image may name its files anything.
  for (size_t i = begin; i < length; ++i) {
    const unsigned char byte = (unsigned char)line[i];
    if (byte < 0x20 || byte == 0x7f) line[i] = '?';
  }
  line[length++] = '\n';
  if (write(STDERR_FILENO, line, length) < 0) return;  // nobody reads it
}

void* must(void* allocated) {
  if (allocated == NULL) {
    say("no memory; not started");
    _exit(125);
  }
  return allocated;
}
