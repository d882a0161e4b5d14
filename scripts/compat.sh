#!/bin/bash
# Another revision's library and monitor, at work with this one's, both ways: the scenes of
# tests/system/successors_test.cpp. REV is a commit, or a version that the file VERSION names.
#
#   scripts/compat.sh REV [BUILD]
#
# A revision before 0.2.0 must be refused in one line instead.
set -euo pipefail
cd "$(dirname "$0")/.."
revision="$1"
build="$(realpath -m "${2:-build}")"
named="$(awk -v version="$revision" 'NR > 1 && $1 == version { print $2 }' VERSION)"
commit="$(git rev-parse --verify "${named:-$revision}^{commit}")"

other="$build/compat/$commit"
if [ ! -d "$other/source" ]; then
  mkdir -p "$other/source.part"
  git archive "$commit" | tar -x -C "$other/source.part"
  mv "$other/source.part" "$other/source"
fi
cmake -S "$other/source" -B "$other/build" -DSWITCHYARD_TESTS=OFF > /dev/null
cmake --build "$other/build" -j "$(nproc)" --target switchyard_shim switchyardd
cmake --build "$build" -j "$(nproc)" --target system_test

filter='OtherRevision/*'
if ! git cat-file -e "$commit:VERSION" 2> /dev/null; then filter='OldRevision/*'; fi
SWITCHYARD_TEST_OTHER="$other/build" "$build/tests/system_test" --gtest_brief=1 \
  --gtest_filter="$filter" | tee "$other/log"
if ! grep -q 'PASSED' "$other/log" || grep -q '0 tests ran\|0 tests from' "$other/log"; then
  echo "compat.sh: no scene was played" >&2
  exit 1
fi
