#!/bin/bash
# Builds with one sanitizer and runs the tests under it.
#
#   scripts/sanitize.sh asan|ubsan|tsan FOLDER JOBS [CMAKE ARGUMENTS]    (asan brings ubsan along)
#
# A sanitizer's run time must be the first library of a process, and so must a preloaded one: the two
# can't share a process. Here the engine is tested compiled in; the preloaded library is `make test`'s.
set -euo pipefail
cd "$(dirname "$0")/.."

case "$1" in
  asan) sanitizer=address,undefined ;;  # they go together, and a build is saved
  ubsan) sanitizer=undefined ;;
  tsan) sanitizer=thread ;;
  *)
    echo "sanitize.sh: '$1' is none of asan, ubsan, tsan" >&2
    exit 2
    ;;
esac

scripts/bootstrap.sh --sanitizer
CXX="$(scripts/pick_compiler.sh --sanitizer)"
export CXX
scripts/configure.sh "$2" -DSWITCHYARD_SANITIZE="$sanitizer" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" "${@:4}"
cmake --build "$2" -j "$3"
# The run time of asan guesses where the thread-local data of a loaded library lies, by its offset in
# a page. Where it guesses wrongly its search for leaks crashes; so it is not to guess.
asan=detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-$asan}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
# Tests fork with threads about, and their children start threads, as programs do.
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:die_after_fork=0}"
# The run time of tsan wants its part of the address space free, which a strongly randomised layout
# doesn't promise. Where a sandbox forbids to switch that off, it has to do without.
fixed=()
if [ "$1" = tsan ] && setarch -R true 2> /dev/null; then fixed=(setarch -R); fi
# Some tests wait now and then, so one more of them runs than there are CPUs.
"${fixed[@]}" scripts/run_tests.sh "$2" "$(($3 + 1))" -LE preload
