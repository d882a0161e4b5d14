#include "tools/entrypoint/others.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/entrypoint/say.h"

extern char** environ;

#define MEMORY "CUDA_DEVICE_MEMORY_LIMIT"

// Null where it is unset or empty.
static const char* value_of(const char* name) {
  const char* value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

static void complain(const char* name, const char* value, const char* forms) {
  say("%s is '%s', and is ignored: expected %s", name, value, forms);
}

// A size as HAMi writes it: digits, and one of g, m, k in either case. -1: none of the kind.
static long long bytes_of(const char* text) {
  const size_t digits = strspn(text, "0123456789");
  if (digits == 0 || digits > 15) return -1;
  const long long number = atoll(text);
  const int unit = tolower((unsigned char)text[digits]);
  const int shift = unit == 'g' ? 30 : unit == 'm' ? 20 : unit == 'k' ? 10 : 0;
  if (unit != '\0' && (shift == 0 || text[digits + 1] != '\0')) return -1;
  return number > (1LL << 50) >> shift ? -1 : number << shift;
}

// Whether `entry` of the environment is the limit of all GPUs or of one, with a value.
static bool is_memory_limit(const char* entry) {
  if (strncmp(entry, MEMORY, strlen(MEMORY)) != 0) return false;
  const char* rest = entry + strlen(MEMORY);
  if (*rest == '_') {
    const size_t digits = strspn(rest + 1, "0123456789");
    if (digits == 0) return false;
    rest += 1 + digits;
  }
  return rest[0] == '=' && rest[1] != '\0';
}

static void take_memory(void) {
  long long least = 0;
  bool differ = false;
  for (char** entry = environ; *entry != NULL; ++entry) {
    if (!is_memory_limit(*entry)) continue;
    const char* sign = strchr(*entry, '=');
    const long long bytes = bytes_of(sign + 1);
    if (bytes < 0 || (bytes > 0 && bytes < 1 << 20)) {
      char name[64];
      snprintf(name, sizeof(name), "%.*s", (int)(sign - *entry), *entry);
      complain(name, sign + 1, "a size of 1m or more, such as 4g, 3000m or 1073741824, or 0");
    } else if (bytes > 0) {
      differ = differ || (least != 0 && bytes != least);
      if (least == 0 || bytes < least) least = bytes;
    }
  }
  if (least == 0) return;
  char text[32];
  snprintf(text, sizeof(text), "%lld", least);
  setenv("SWITCHYARD_MEMORY", text, 1);
  if (differ) {
    say(MEMORY
        "_i differ from GPU to GPU, and a job has one quota on each: the smallest holds, "
        "%lld MiB",
        least >> 20);
  }
}

static void take_limit(const char* name, const char* value) {
  const size_t digits = strspn(value, "0123456789");
  const int percent = digits > 0 && digits <= 3 && value[digits] == '\0' ? atoi(value) : -1;
  if (percent < 0 || percent > 100) {
    complain(name, value, "percent of the GPU's time, from 0 to 100");
  } else if (percent > 0 && percent < 100) {
    char text[8];
    snprintf(text, sizeof(text), "%d%%", percent);
    setenv("SWITCHYARD_LIMIT", text, 1);
  }
}

static void take_priority(const char* name, const char* value) {
  if (strcmp(value, "0") == 0) {
    setenv("SWITCHYARD_PRIORITY", "high", 1);
  } else if (strcmp(value, "1") == 0) {
    setenv("SWITCHYARD_PRIORITY", "low", 1);
  } else {
    complain(name, value, "0 (high) or 1 (low)");
  }
}

static void take_share(const char* name, const char* value) {
  const size_t length = strlen(value);
  const char* point = strchr(value, '.');
  const bool decimal = length <= 15 && strspn(value, "0123456789.") == length &&
                       (point == NULL || strchr(point + 1, '.') == NULL);
  const double part = decimal ? strtod(value, NULL) : 0;
  if (part < 0.01 || part > 1) {
    complain(name, value, "a part of a GPU from 0.01 to 1, such as 0.5");
    return;
  }
  setenv("SWITCHYARD_SHARE", value, 1);
}

static void take(const char* ours, const char* theirs, void (*read)(const char*, const char*)) {
  const char* value = value_of(theirs);
  if (value != NULL && value_of(ours) == NULL) read(theirs, value);
}

void take_others_settings(void) {
  if (value_of("SWITCHYARD_MEMORY") == NULL) take_memory();
  take("SWITCHYARD_LIMIT", "CUDA_DEVICE_SM_LIMIT", take_limit);
  take("SWITCHYARD_PRIORITY", "CUDA_TASK_PRIORITY", take_priority);
  take("SWITCHYARD_SHARE", "GPU_PORTION", take_share);
}
