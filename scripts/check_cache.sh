#!/bin/bash
# Checks that the compiler's cache serves no precompiled header of an earlier text. With such a one
# g++ takes a header whose comment was changed for another file, and reads it twice.
#
#   scripts/check_cache.sh BUILD
set -euo pipefail
build="$1"
launcher="$(sed -n 's/^CMAKE_CXX_COMPILER_LAUNCHER:[A-Z]*=//p' "$build/CMakeCache.txt")"
compiler="$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")"
if [ -z "$launcher" ]; then exit 0; fi # there is no cache
IFS=';' read -r -a compile <<< "$launcher;$compiler"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export CCACHE_DIR="$work/cache"
cd "$work"
for comment in one another; do
  printf '#pragma once\n// %s\nstruct Driver {};\n' "$comment" > header.h
  "${compile[@]}" -w -fpch-preprocess -x c++-header -MD -MF header.d -o "$comment" -c header.h
done
if cmp -s one another; then
  echo "check_cache.sh: the cache served the precompiled header of another text; see configure.sh" >&2
  exit 1
fi
