// Whether the library can be preloaded into a program of this image.
//
// Concept. The library needs the dynamic loader of glibc, and libc.so.6 of 2.28 or newer. Neither
// is asked: what the loader would look at is read from the files. They are an image's, so each
// offset in them is checked by the read that uses it, and each loop has a bound.
//
// Threading: reads the file system and PATH.
#pragma once

#include <stdbool.h>

// The newest version of glibc that a symbol of the library has: "GLIBC_2.28".
#define SWITCHYARD_GLIBC_MINOR 28

// Whether `library` fits `command` as execvp() would find it. Else `why` says why not: one clause
// whose subject is the program. A command that is not there fits, since exec says that better.
bool library_fits(const char* command, const char* library, char* why, unsigned size);

// The highest N of the versions GLIBC_2.N that the library at `path` defines; -1: it has none.
int glibc_minor(const char* path);
