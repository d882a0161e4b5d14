#!/bin/bash
# Runs the tests of a build folder. When at most five fail, each of them runs once more, alone.
# Beside others on a loaded machine, a test may fail by one unlucky moment. Those that pass then are
# listed as UNSTABLE, and each is a defect to be mended. Those that fail again fail the run.
#
#   scripts/run_tests.sh FOLDER TESTS_AT_A_TIME [CTEST ARGUMENTS]
set -euo pipefail

folder="$1"
at_a_time="$2"
shift 2
failures="$folder/Testing/Temporary/LastTestsFailed.log"
output="$(mktemp)"
trap 'rm -f "$output"' EXIT

# ctest leaves the list of an earlier run when nothing fails.
rm -f "$failures"
if ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$at_a_time" "$@" |
  tee "$output"; then
  exit 0
fi
# Lines "NUMBER:NAME". Without the list, ctest failed and not a test.
[ -s "$failures" ] || exit 1
mapfile -t failed < "$failures"
if [ "${#failed[@]}" -gt 5 ]; then
  echo "run_tests.sh: ${#failed[@]} tests failed, and at most 5 would run again" >&2
  exit 1
fi
# The output holds what failed tests printed. A sanitizer's report is true however it came about.
if grep -qE 'Sanitizer: |: runtime error: ' "$output"; then
  echo "run_tests.sh: a sanitizer reported a fault (see above), so no test runs again" >&2
  exit 1
fi

unstable=()
again=()
for test in "${failed[@]}"; do
  number="${test%%:*}"
  if ctest --test-dir "$folder" --output-on-failure --no-tests=error -I "$number,$number"; then
    unstable+=("${test#*:}")
  else
    again+=("${test#*:}")
  fi
done
echo
for name in "${unstable[@]}"; do
  echo "UNSTABLE: $name failed beside others and passed alone"
done
for name in "${again[@]}"; do
  echo "FAILED: $name failed beside others and failed alone"
done
# Under a sanitizer a test holds many cases.
sed -n 's/^\[  FAILED  \] \([^ ]*\.[^ ,]*\).*/  the case \1/p' "$output" | sort -u
[ "${#again[@]}" -eq 0 ]
