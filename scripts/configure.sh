#!/bin/bash
# Makes a build folder ready: packages, compiler, CMake. Quick when nothing has changed.
#
#   scripts/configure.sh [--lint] FOLDER [CMake arguments]
set -euo pipefail
# The real path: compilers note that one, and a link's would not be found in it to be shortened.
cd -P "$(dirname "$0")/.."

lint=()
if [ "${1:-}" = --lint ]; then
  lint=(--lint)
  shift
fi
folder="$1"
shift

scripts/bootstrap.sh "${lint[@]}"
cxx="$(scripts/pick_compiler.sh)"
# The C compiler of the same family, unless a person chose one.
case "$(basename "$cxx")" in
  g++*) cc="${CC:-${cxx/g++/gcc}}" ;;
  clang++*) cc="${CC:-${cxx/clang++/clang}}" ;;
  *) cc="${CC:-cc}" ;;
esac

# With ccache, folders share what they compiled, wherever they lie. It must look at the text of each
# header (depend mode). By preprocessed text a changed comment does not count, and it serves a
# precompiled header that does not fit. It serves what was compiled with other maps of paths, too, so
# all folders have the same ones. The namespace forgets what was kept otherwise.
launcher=""
if command -v ccache > /dev/null; then
  launcher="env;CCACHE_DEPEND=1;CCACHE_NAMESPACE=real-path;CCACHE_NOHASHDIR=1;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;CCACHE_BASEDIR=$PWD;ccache"
fi
# A build folder keeps its first compiler and cache; start anew when another one is wanted.
cache="$folder/CMakeCache.txt"
if [ -f "$cache" ]; then
  used="$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$cache")"
  launched="$(sed -n 's/^CMAKE_CXX_COMPILER_LAUNCHER:[A-Z]*=//p' "$cache")"
  if [ "$(command -v "$used")" = "$(command -v "$cxx")" ] && [ "$launched" = "$launcher" ] &&
    [ -f "$folder/build.ninja" ]; then
    # A build looks for changed CMake files by itself; lint builds nothing.
    [ ${#lint[@]} -eq 0 ] || ninja -C "$folder" build.ninja > /dev/null
    exit 0
  fi
  rm -rf "$cache" "$folder/CMakeFiles"
fi

CC="$cc" CXX="$cxx" cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" "$@"
