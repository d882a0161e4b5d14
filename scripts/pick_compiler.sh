#!/bin/bash
# Prints the C++ compiler to build with: $CXX if it is set, else the first fit one by name.
# With --quiet, prints nothing when there is none (exit 1); without, says what is wrong.
set -euo pipefail

# g++ 11 or newer, clang++ 14 or newer: the oldest that build this as C++20 without warnings.
fit() {
  local macros gcc clang
  macros="$("$1" -dM -E -x c++ /dev/null 2> /dev/null)" || return 1
  gcc="$(awk '$2 == "__GNUC__" {print $3}' <<< "$macros")"
  clang="$(awk '$2 == "__clang_major__" {print $3}' <<< "$macros")"
  if [ -n "$clang" ]; then [ "$clang" -ge 14 ]; else [ "${gcc:-0}" -ge 11 ]; fi
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
for candidate in g++-13 g++-12 g++-11 g++ clang++-14 clang++; do
  if fit "$candidate"; then
    echo "$candidate"
    exit 0
  fi
done
[ "${1:-}" = --quiet ] || echo "no fit compiler found: install g++ 11 or newer, or clang++ 14" >&2
exit 1
