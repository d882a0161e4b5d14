// switchyard-entrypoint: makes the command of a container a job of the host's monitor, and becomes
// it.
//
// Concept. It runs in any image, so it is static C. For user names, host names, locales and
// dlopen(), a static glibc loads files of the image: it uses none of these. No process of it stays,
// so signals and the exit status are the command's. A command that can't be managed is one line on
// stderr.
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/entrypoint/image.h"
#include "tools/entrypoint/monitor.h"
#include "tools/entrypoint/others.h"
#include "tools/entrypoint/preload.h"
#include "tools/entrypoint/say.h"

enum { kUsage = 2, kRefused = 125, kNotExecutable = 126, kNotFound = 127 };

static const char kHelp[] =
    "switchyard-entrypoint, makes the command of a container a managed job\n"
    "\n"
    "\n"
    "Usage: switchyard-entrypoint COMMAND [ARGUMENTS]\n"
    "\n"
    "Options:\n"
    "  --help                      print this help\n"
    "  --version                   print the version\n"
    "\n"
    "Examples:\n"
    "  docker run -v /run/switchyard:/run/switchyard:ro\n"
    "      -v /usr/lib/switchyard:/usr/lib/switchyard:ro\n"
    "      --entrypoint /usr/lib/switchyard/switchyard-entrypoint IMAGE COMMAND\n"
    "\n"
    "It prepends libswitchyard.so to LD_PRELOAD and becomes the command. The library\n"
    "lies beside it, else in /usr/lib/switchyard. Images with musl, with a glibc\n"
    "older than 2.28, and static programs cannot have the library: one line says so,\n"
    "and the command runs unmanaged. The same line says which mount is missing.\n"
    "SWITCHYARD_LOG=off silences it.\n"
    "\n"
    "Without SWITCHYARD_MEMORY, _LIMIT, _PRIORITY and _SHARE it takes\n"
    "CUDA_DEVICE_MEMORY_LIMIT[_i], CUDA_DEVICE_SM_LIMIT, CUDA_TASK_PRIORITY and\n"
    "GPU_PORTION, which HAMi and KAI set.\n"
    "\n"
    "Exit status: the command's own, 2 for a usage error, 125 where\n"
    "SWITCHYARD_REQUIRE is set and the command would be unmanaged, 126 and 127 when\n"
    "the command can't be executed or found.\n";

// As the library and the tools read it (include/switchyard/variables.h).
static bool is_on(const char* name) {
  const char* value = getenv(name);
  return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

static int become(char** command) {
  execvp(command[0], command);
  const int error = errno;
  say("cannot run '%s': %s", command[0],
      error == ENOENT ? "no such program, or its interpreter is missing" : strerror(error));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

static void preload(const char* library) {
  char* value = preload_with(getenv("LD_PRELOAD"), library);
  if (value != NULL) {
    setenv("LD_PRELOAD", value, 1);
  } else {
    unsetenv("LD_PRELOAD");
  }
  free(value);
}

// Whether the library can be preloaded; else `why` says why not.
static bool is_fit(const char* command, char* library, unsigned size, char* why, unsigned room) {
  char where[PATH_MAX + 64], about[PATH_MAX];
  if (!find_library(where, sizeof(where))) {
    snprintf(why, room, SWITCHYARD_LIBRARY_NAME " is %s: mount its folder", where);
    return false;
  }
  if (strpbrk(where, ": ") != NULL || strlen(where) >= size) {
    snprintf(why, room, "LD_PRELOAD takes no path with a blank or a colon: %s", where);
    return false;
  }
  strcpy(library, where);
  if (library_fits(command, library, about, sizeof(about))) return true;
  snprintf(why, room, "'%s' %s", command, about);
  return false;
}

static int run(char** command) {
  char library[PATH_MAX], why[2 * PATH_MAX];
  const bool required = is_on("SWITCHYARD_REQUIRE");
  take_others_settings();
  const bool fit = is_fit(command[0], library, sizeof(library), why, sizeof(why));
  if (!fit || !find_monitor(why, sizeof(why))) {
    if (required) {
      say("%s; not started, because SWITCHYARD_REQUIRE is set", why);
      return kRefused;
    }
    say("%s; starting unmanaged%s", why, fit ? " until a monitor answers" : "");
  }
  // A container device may have preloaded the library where it can't be.
  preload(fit ? library : NULL);
  return become(command);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--help") == 0) return fputs(kHelp, stdout) < 0;
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    return puts("switchyard-entrypoint " SWITCHYARD_VERSION_TEXT) < 0;
  }
  char** command = argv + 1;
  if (argc > 1 && strcmp(argv[1], "--") == 0) ++command;
  if (argc < 2 || *command == NULL) {
    say("a command is missing: switchyard-entrypoint COMMAND [ARGUMENTS]");
    return kUsage;
  }
  if (is_on("SWITCHYARD_DISABLE")) return become(command);
  return run(command);
}
