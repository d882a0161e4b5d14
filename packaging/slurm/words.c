#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Not strtod: srun may have a locale with a decimal comma. Null: no number; else what follows it.
static const char* read_number(const char* text, double* number) {
  double value = 0, unit = 1;
  int digits = 0;
  bool point = false;
  for (;; ++text) {
    if (*text >= '0' && *text <= '9') {
      ++digits;
      value = value * 10 + (*text - '0');
      if (point) unit *= 10;
    } else if (*text == '.' && !point) {
      point = true;
    } else {
      break;
    }
  }
  if (digits == 0 || digits > 20) return NULL;
  *number = value / unit;
  return text;
}

// 0: none.
static double bytes_of(const char* text) {
  static const struct {
    const char* name;
    double bytes;
  } units[] = {{"", 1},       {"b", 1},        {"k", 0x1p10},   {"kib", 0x1p10}, {"kb", 1e3},
               {"m", 0x1p20}, {"mib", 0x1p20}, {"mb", 1e6},     {"g", 0x1p30},   {"gib", 0x1p30},
               {"gb", 1e9},   {"t", 0x1p40},   {"tib", 0x1p40}, {"tb", 1e12}};
  double number = 0;
  const char* unit = read_number(text, &number);
  if (unit == NULL) return 0;
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); ++i) {
    if (strcasecmp(unit, units[i].name) != 0) continue;
    const double bytes = number * units[i].bytes;
    const double least = *unit == '\0' ? 0x1p20 : 1;  // who writes 10 means gigabytes
    return bytes < least || bytes >= 0x1p50 + 1 ? 0 : bytes;
  }
  return 0;
}

static bool fits(const char* text) { return strlen(text) < SLURM_VALUE; }

const char* slurm_bad_memory(const char* text) {
  const bool good = fits(text) && (strcasecmp(text, "none") == 0 || bytes_of(text) > 0);
  return good ? NULL : "a size such as 20GiB, 512MiB, 1.5g or 1073741824, or none";
}

const char* slurm_bad_weight(const char* text) {
  double weight = 0;
  const char* rest = read_number(text, &weight);
  const bool number = rest != NULL && *rest == '\0' && weight >= 0.01 && weight <= 1000;
  return fits(text) && (number || strcasecmp(text, "auto") == 0)
             ? NULL
             : "a weight from 0.01 to 1000, such as 1, 4 or 0.5, or auto";
}

const char* slurm_bad_priority(const char* text) {
  const bool good =
      strcmp(text, "high") == 0 || strcmp(text, "normal") == 0 || strcmp(text, "low") == 0;
  return good ? NULL : "high, normal or low";
}

// The value of `word` if its name is `name`; else null.
static const char* value_of(const char* word, const char* name) {
  const size_t length = strlen(name);
  return strncmp(word, name, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

bool slurm_read_site(struct slurm_site* site, int count, char** words, char* why, size_t room) {
  *site = (struct slurm_site){.library = "/usr/lib/switchyard/libswitchyard.so",
                              .command = "/usr/bin/switchyard",
                              .socket = "/run/switchyard/monitor.sock"};
  for (int i = 0; i < count; ++i) {
    const char* value = NULL;
    bool good = true;
    if ((value = value_of(words[i], "library")) != NULL) {
      site->library = value;
      good = value[0] == '/' && strpbrk(value, " :") == NULL;  // LD_PRELOAD takes no others
    } else if ((value = value_of(words[i], "command")) != NULL) {
      site->command = value;
      good = value[0] == '/';
    } else if ((value = value_of(words[i], "socket")) != NULL) {
      site->socket = value;
      good = value[0] == '/';
    } else if ((value = value_of(words[i], "shards")) != NULL) {
      char* end = NULL;
      const unsigned long shards = strtoul(value, &end, 10);
      good = *value >= '0' && *value <= '9' && *end == '\0' && shards >= 1 && shards <= 1000;
      site->shards = (unsigned)shards;
    } else if ((value = value_of(words[i], "gpu-memory")) != NULL) {
      site->gpu_bytes = bytes_of(value);
      good = site->gpu_bytes > 0;
    } else if (strcmp(words[i], "all") == 0) {
      site->all = true;
    } else {
      good = false;
    }
    if (good) continue;
    snprintf(why, room,
             "bad word '%s' in plugstack.conf: library=PATH, command=PATH, socket=PATH, "
             "shards=1..1000, gpu-memory=SIZE or all",
             words[i]);
    return false;
  }
  if (site->gpu_bytes == 0 || site->shards != 0) return true;
  snprintf(why, room,
           "gpu-memory without shards in plugstack.conf: shards=N says how many a GPU has");
  return false;
}

struct slurm_part slurm_part_of(const struct slurm_site* site, unsigned shards, unsigned gpus) {
  struct slurm_part part = {"", ""};
  if (site->shards == 0 || shards == 0) return part;
  const double each = (double)shards / (gpus != 0 ? gpus : 1);
  const double weight = each < 0.01 ? 0.01 : each > 1000 ? 1000 : each;
  snprintf(part.weight, sizeof(part.weight), "%.15g", weight);
  const double ratio = each < site->shards ? each / site->shards : 1;
  const unsigned long long mebibytes = (unsigned long long)(site->gpu_bytes * ratio / 0x1p20);
  if (mebibytes != 0) snprintf(part.memory, sizeof(part.memory), "%lluMiB", mebibytes);
  return part;
}
