#!/bin/bash
# Made-up tests of each kind: a test that fails must fail the run, unless it passes alone.
set -euo pipefail
run_tests="$1"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
cd "$tree"

# Each test counts its runs in a file of its name. With "once", only the first run fails.
add() {
  local body="echo >> '$tree/$1.runs'; $2"
  [ "$2" != once ] ||
    body="echo >> '$tree/$1.runs'; [ \$(wc -l < '$tree/$1.runs') -gt 1 ]"
  echo "add_test($1 sh -c [==[$body]==])" >> CTestTestfile.cmake
}
anew() {
  rm -rf ./*
  add Good.Passes true
}
# Runs the tests, and compares the exit status: pass or fail.
expect() {
  local wanted="$1" got=pass
  shift
  "$run_tests" "$tree" 1 "$@" > report 2>&1 || got=fail
  if [ "$got" != "$wanted" ]; then
    echo "a run should $wanted, and did not:"
    cat report
    exit 1
  fi
}
says() { grep -qxF "$1" report || { echo "not said: $1"; cat report; exit 1; }; }
silent() { if grep -q "$1" report; then echo "said: $1"; cat report; exit 1; fi; }
runs() {
  local got
  got="$(wc -l < "$1.runs")"
  [ "$got" -eq "$2" ] || { echo "$1 ran $got times instead of $2"; cat report; exit 1; }
}

anew
expect pass
silent UNSTABLE

# One that fails always.
anew
add Bad.Fails false
expect fail
says "FAILED: Bad.Fails failed beside others and failed alone"
silent UNSTABLE
runs Bad.Fails 2
runs Good.Passes 1

# One that passes alone. The next run does not read the list of failures that this one left.
anew
add Unlucky.PassesAlone once
expect pass
says "UNSTABLE: Unlucky.PassesAlone failed beside others and passed alone"
runs Unlucky.PassesAlone 2
runs Good.Passes 1
expect fail -R Nothing.HasThisName
silent UNSTABLE
silent LastTestsFailed.log
runs Unlucky.PassesAlone 2

# One of each: the run fails, and both are named.
anew
add Bad.Fails false
add Unlucky.PassesAlone once
expect fail
says "FAILED: Bad.Fails failed beside others and failed alone"
says "UNSTABLE: Unlucky.PassesAlone failed beside others and passed alone"

# A test of many cases: those that failed are named.
anew
add Many.Part1Of2 'echo "[  FAILED  ] Suite.Case/3, where GetParam() = 3 (2 ms)"; false'
expect fail
says "  the case Suite.Case/3"

# Five run again. Six do not.
anew
for number in 1 2 3 4 5; do add "Unlucky.Number$number" once; done
expect pass
runs Unlucky.Number5 2
anew
for number in 1 2 3 4 5 6; do add "Unlucky.Number$number" once; done
expect fail
silent UNSTABLE
runs Unlucky.Number1 1
runs Unlucky.Number6 1

# A sanitizer's report.
anew
add Racy.PassesAlone 'echo "WARNING: ThreadSanitizer: data race"; [ $(wc -l < Racy.PassesAlone.runs) -gt 1 ]'
expect fail
silent UNSTABLE
runs Racy.PassesAlone 1

# Filters of the first run: the number that runs again is the test's own.
anew
add Unlucky.PassesAlone once
expect pass -R Unlucky
says "UNSTABLE: Unlucky.PassesAlone failed beside others and passed alone"
silent Good.Passes
