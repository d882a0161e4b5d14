#!/bin/bash
# Prints the C++ compiler to build with: $CXX if it is set, else the first fit one by name.
#
#   scripts/pick_compiler.sh [--quiet]    --quiet: says nothing when there is none (exit 1)
#   scripts/pick_compiler.sh --sanitizer  to build for a sanitizer with
#
# clang++ 14 compiles for a sanitizer quicker than g++, so it is the first one there.
set -euo pipefail

# g++ 11 or newer, clang++ 14 or newer: the oldest that build this as C++20 without warnings.
fit() {
  local macros gcc clang
  macros="$("$1" -dM -E -x c++ /dev/null 2> /dev/null)" || return 1
  gcc="$(awk '$2 == "__GNUC__" {print $3}' <<< "$macros")"
  clang="$(awk '$2 == "__clang_major__" {print $3}' <<< "$macros")"
  if [ -n "$clang" ]; then [ "$clang" -ge 14 ]; else [ "${gcc:-0}" -ge 11 ]; fi
}

# Whether clang++ has the run times, which are another package, and can read the C++ headers here.
sanitizes() {
  local text='#include <chrono>
#include <functional>
#include <memory>
#include <string>
int main() {}'
  fit "$1" && "$1" -std=c++20 -fsanitize=thread -x c++ - -o /dev/null <<< "$text" 2> /dev/null &&
    "$1" -fsanitize=address,undefined -x c++ - -o /dev/null <<< 'int main() {}' 2> /dev/null
}

if [ -n "${CXX:-}" ]; then
  # A compiler that a person chose is used or refused, never replaced.
  if fit "$CXX"; then
    echo "$CXX"
    exit 0
  fi
  [ "${1:-}" = --quiet ] ||
    echo "CXX=$CXX is not a compiler that can build this: g++ 11 or newer, clang++ 14 or newer" >&2
  exit 1
fi
if [ "${1:-}" = --sanitizer ] && sanitizes clang++-14; then
  echo clang++-14
  exit 0
fi
for candidate in g++-13 g++-12 g++-11 g++ clang++-14 clang++; do
  if fit "$candidate"; then
    echo "$candidate"
    exit 0
  fi
done
[ "${1:-}" = --quiet ] || echo "no fit compiler found: install g++ 11 or newer, or clang++ 14" >&2
exit 1
