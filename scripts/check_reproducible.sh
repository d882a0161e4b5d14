#!/bin/bash
# Builds targets once more, in another folder that a link leads to, and compares the bytes with
# those of BUILD.
#
#   scripts/check_reproducible.sh BUILD TARGET=FILE...     as in switchyard_shim=libswitchyard.so
set -euo pipefail
cd "$(dirname "$0")/.."
build="$(realpath "$1")"
shift
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
copy="$work/a/folder/with/another/name"
mkdir -p "$copy/build"
ln -s "$copy" "$work/link"
tar -c --exclude=./build --exclude=./.git . | tar -x -C "$copy"
for fetched in build/cuda-headers build/tomlplusplus; do
  [ ! -d "$fetched" ] || cp -a "$fetched" "$copy/build"
done

# The same compiler, and ccache where that was used: it shortens paths. Its cache begins empty.
cxx="$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")"
export CCACHE_DIR="$work/ccache"
umask 077
(cd "$work/link" && CXX="$cxx" scripts/configure.sh build && cmake --build build -j "$(nproc)" \
  --target "${@%%=*}") > "$work/log" 2>&1 || {
  tail -n 30 "$work/log" >&2
  exit 1
}
bad=0
for pair in "$@"; do
  file="${pair#*=}"
  if ! cmp "$build/$file" "$copy/build/$file"; then
    echo "check_reproducible: $file depends on where it is built" >&2
    bad=1
  fi
done
exit "$bad"
