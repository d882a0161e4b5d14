#include "tools/entrypoint/preload.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/entrypoint/say.h"

bool find_library(char* out, unsigned size) {
  char self[PATH_MAX] = "";
  const ssize_t got = readlink("/proc/self/exe", self, sizeof(self) - 1);
  char* slash = got > 0 ? strrchr(self, '/') : NULL;
  if (slash != NULL) {
    *slash = '\0';
    snprintf(out, size, "%s/" SWITCHYARD_LIBRARY_NAME, self);
    if (access(out, R_OK) == 0) return true;
  }
  snprintf(out, size, SWITCHYARD_LIBRARY_FOLDER "/" SWITCHYARD_LIBRARY_NAME);
  if (access(out, R_OK) == 0) return true;
  snprintf(out, size, "neither in %s nor in " SWITCHYARD_LIBRARY_FOLDER,
           slash != NULL ? self : "the folder of this program");
  return false;
}

static bool is_ours(const char* entry, size_t length) {
  const size_t name = strlen(SWITCHYARD_LIBRARY_NAME);
  return length >= name && strncmp(entry + length - name, SWITCHYARD_LIBRARY_NAME, name) == 0 &&
         (length == name || entry[length - name - 1] == '/');
}

char* preload_with(const char* value, const char* library) {
  if (value == NULL) value = "";
  if (library == NULL) library = "";
  char* out = must(malloc(strlen(library) + strlen(value) + 2));
  strcpy(out, library);
  // ld.so takes blanks and colons alike.
  for (const char* at = value; *at != '\0';) {
    const size_t length = strcspn(at, ": ");
    if (length > 0 && !is_ours(at, length)) {
      if (out[0] != '\0') strcat(out, ":");
      strncat(out, at, length);
    }
    at += length + (at[length] != '\0');
  }
  if (out[0] != '\0') return out;
  free(out);
  return NULL;
}
