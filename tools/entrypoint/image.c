#include "tools/entrypoint/image.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kMostHeaders = 256, kMostEntries = 4096, kMostScripts = 4 };

typedef struct {
  int fd;
  Elf64_Ehdr head;
} Elf;

static bool read_at(int fd, void* to, size_t bytes, Elf64_Off at) {
  return at <= (Elf64_Off)LLONG_MAX - bytes && pread(fd, to, bytes, (off_t)at) == (ssize_t)bytes;
}

// False: there is no such file, or it is none of 64 bits in this machine's order of bytes.
static bool open_elf(const char* path, Elf* elf) {
  // Whatever the image has in its place: a FIFO would wait for a writer.
  elf->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (elf->fd < 0) return false;
  const bool good = read_at(elf->fd, &elf->head, sizeof(elf->head), 0) &&
                    memcmp(elf->head.e_ident, ELFMAG, SELFMAG) == 0 &&
                    elf->head.e_ident[EI_CLASS] == ELFCLASS64 &&
                    elf->head.e_ident[EI_DATA] == ELFDATA2LSB;
  if (!good) close(elf->fd);
  return good;
}

// The `number`th program header; false behind the last.
static bool header_of(const Elf* elf, unsigned number, Elf64_Phdr* out) {
  return number < elf->head.e_phnum && number < kMostHeaders &&
         read_at(elf->fd, out, sizeof(*out), elf->head.e_phoff + number * sizeof(*out));
}

static bool find_header(const Elf* elf, Elf64_Word type, Elf64_Phdr* out) {
  for (unsigned i = 0; header_of(elf, i, out); ++i) {
    if (out->p_type == type) return true;
  }
  return false;
}

// Where the file has what the program will see at `address`.
static bool offset_of(const Elf* elf, Elf64_Addr address, Elf64_Off* out) {
  Elf64_Phdr header;
  for (unsigned i = 0; header_of(elf, i, &header); ++i) {
    if (header.p_type != PT_LOAD || address < header.p_vaddr) continue;
    if (address - header.p_vaddr >= header.p_filesz) continue;
    *out = header.p_offset + (address - header.p_vaddr);
    return true;
  }
  return false;
}

// A text of the file, cut where it is longer.
static bool text_at(const Elf* elf, Elf64_Off at, char* out, size_t size) {
  const ssize_t got = at > LLONG_MAX ? -1 : pread(elf->fd, out, size - 1, (off_t)at);
  if (got <= 0) return false;
  out[got] = '\0';
  return true;
}

typedef struct {
  Elf64_Off versions;
  Elf64_Off names;
} Definitions;

static bool find_definitions(const Elf* elf, Definitions* out) {
  Elf64_Phdr dynamic;
  if (!find_header(elf, PT_DYNAMIC, &dynamic)) return false;
  bool versions = false, names = false;
  for (unsigned i = 0; i < kMostEntries && i < dynamic.p_filesz / sizeof(Elf64_Dyn); ++i) {
    Elf64_Dyn entry;
    if (!read_at(elf->fd, &entry, sizeof(entry), dynamic.p_offset + i * sizeof(entry))) break;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_VERDEF) versions = offset_of(elf, entry.d_un.d_ptr, &out->versions);
    if (entry.d_tag == DT_STRTAB) names = offset_of(elf, entry.d_un.d_ptr, &out->names);
  }
  return versions && names;
}

// The N of "GLIBC_2.N" or of "GLIBC_2.N.M"; -1 of anything else.
static int minor_of(const char* name) {
  unsigned minor = 0;
  return sscanf(name, "GLIBC_2.%3u", &minor) == 1 ? (int)minor : -1;
}

int glibc_minor(const char* path) {
  Elf elf;
  Definitions there;
  int newest = -1;
  if (!open_elf(path, &elf)) return -1;
  if (find_definitions(&elf, &there)) {
    Elf64_Off at = there.versions;
    for (unsigned i = 0; i < kMostEntries; ++i) {
      Elf64_Verdef version;
      Elf64_Verdaux name;
      char text[64];
      if (!read_at(elf.fd, &version, sizeof(version), at) ||
          !read_at(elf.fd, &name, sizeof(name), at + version.vd_aux) ||
          !text_at(&elf, there.names + name.vda_name, text, sizeof(text))) {
        break;
      }
      if (minor_of(text) > newest) newest = minor_of(text);
      if (version.vd_next == 0) break;
      at += version.vd_next;
    }
  }
  close(elf.fd);
  return newest;
}

// libc.so.6 stands beside the loader on every distribution, once its links are followed; else it is
// where the loader looks without being told.
static int image_glibc(const char* loader) {
  static const char* const kFolders[] = {"/lib/x86_64-linux-gnu",
                                         "/usr/lib/x86_64-linux-gnu",
                                         "/lib64",
                                         "/usr/lib64",
                                         "/lib",
                                         "/usr/lib"};
  char real[PATH_MAX], path[PATH_MAX + 16];
  if (realpath(loader, real) != NULL) {
    *strrchr(real, '/') = '\0';
    snprintf(path, sizeof(path), "%s/libc.so.6", real);
    const int minor = glibc_minor(path);
    if (minor >= 0) return minor;
  }
  for (size_t i = 0; i < sizeof(kFolders) / sizeof(kFolders[0]); ++i) {
    snprintf(path, sizeof(path), "%s/libc.so.6", kFolders[i]);
    const int minor = glibc_minor(path);
    if (minor >= 0) return minor;
  }
  return -1;
}

static const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static bool loader_fits(const char* loader, char* why, unsigned size) {
  if (strncmp(base_name(loader), "ld-musl-", 8) == 0) {
    snprintf(why, size, "runs on musl, and the library needs glibc");
    return false;
  }
  const int minor = image_glibc(loader);
  if (minor >= SWITCHYARD_GLIBC_MINOR) return true;
  if (minor >= 0) {
    snprintf(why, size, "runs on a glibc of version 2.%d, and the library needs 2.%d", minor,
             SWITCHYARD_GLIBC_MINOR);
  } else {
    snprintf(why, size, "runs on %s, and no libc.so.6 with versions of glibc was found", loader);
  }
  return false;
}

static bool program_fits(const Elf* elf, const char* library, char* why, unsigned size) {
  Elf ours;
  if (open_elf(library, &ours)) {
    close(ours.fd);
    if (ours.head.e_machine != elf->head.e_machine) {
      snprintf(why, size, "is for another kind of processor than the library");
      return false;
    }
  }
  Elf64_Phdr interpreter;
  char loader[PATH_MAX];
  if (!find_header(elf, PT_INTERP, &interpreter)) {
    snprintf(why, size,
             "is linked statically, so nothing can be preloaded (if it starts another program, "
             "put switchyard-entrypoint before that one)");
    return false;
  }
  if (!text_at(elf, interpreter.p_offset, loader, sizeof(loader))) return true;
  return access(loader, F_OK) != 0 || loader_fits(loader, why, size);  // exec says what is missing
}

// As execvp() looks for it. False: it will not find a file that it may execute.
static bool find_program(const char* command, char* out, unsigned size) {
  struct stat about;
  if (strchr(command, '/') != NULL) return (unsigned)snprintf(out, size, "%s", command) < size;
  const char* path = getenv("PATH");
  if (path == NULL) path = "/bin:/usr/bin";
  for (;; ++path) {
    const int length = (int)strcspn(path, ":");
    const int written =
        snprintf(out, size, "%.*s%s%s", length, path, length > 0 ? "/" : "./", command);
    if (written > 0 && (unsigned)written < size && stat(out, &about) == 0 &&
        S_ISREG(about.st_mode) && access(out, X_OK) == 0) {
      return true;
    }
    path += length;
    if (*path == '\0') return false;
  }
}

// The interpreter that the first line of a script names; "/bin/sh" where none is named, as execvp()
// does. False: this is no text.
static bool interpreter_of(const char* path, char* out, unsigned size) {
  char line[256] = "";
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return false;
  const ssize_t got = read(fd, line, sizeof(line) - 1);
  close(fd);
  if (got <= 0 || memcmp(line, ELFMAG, SELFMAG) == 0) return false;
  const char* name = "/bin/sh";
  size_t length = strlen(name);
  if (strncmp(line, "#!", 2) == 0) {
    name = line + 2 + strspn(line + 2, " \t");
    length = strcspn(name, " \t\r\n");
  }
  return length > 0 && (unsigned)snprintf(out, size, "%.*s", (int)length, name) < size;
}

bool library_fits(const char* command, const char* library, char* why, unsigned size) {
  char program[PATH_MAX], next[PATH_MAX];
  if (!find_program(command, program, sizeof(program))) return true;
  for (int i = 0; i < kMostScripts; ++i) {
    Elf elf;
    if (open_elf(program, &elf)) {
      const bool fits = program_fits(&elf, library, why, size);
      close(elf.fd);
      return fits;
    }
    if (!interpreter_of(program, next, sizeof(next))) break;
    memcpy(program, next, sizeof(program));
  }
  unsigned char kind[EI_NIDENT] = {0};
  const int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const bool elf =
      fd >= 0 && read_at(fd, kind, sizeof(kind), 0) && memcmp(kind, ELFMAG, SELFMAG) == 0;
  if (fd >= 0) close(fd);
  if (elf) snprintf(why, size, "is no program of 64 bits, and the library is");
  return !elf;
}
