#!/bin/bash
# Runs a step of .ci/run, and fails when it takes more CPU seconds than its budget. Then something has
# become slow: make it faster, or take something else out.
#
#   scripts/step.sh BUDGET COMMAND...
#
# CPU seconds hardly grow with what else runs on a machine. But they are longer on a slow machine,
# and on one whose cores are shared with others. So the budget grows with the time that a known text
# takes to compile, on up to four CPUs at once. It is compiled before the step, and again after one
# that took more than that.
# SWITCHYARD_STEP_SLOWNESS=1 says that this machine is as fast as the one of the budgets.
set -euo pipefail
cd "$(dirname "$0")/.."
budget="$1"
shift

# The CPU time of this shell's children, in seconds. Not in a subshell, whose children are others.
times_file="$(mktemp)"
trap 'rm -f "$times_file"' EXIT
cpu_seconds() {
  times > "$times_file"
  cpu="$(tail -n 1 "$times_file" | tr 'ms' '  ' | awk '{printf "%.2f", 60 * $1 + $2 + 60 * $3 + $4}')"
}
known_text() {
  echo '#include <regex>
int main(int, char** words) { return std::regex_match(words[0], std::regex("[a-z]+")) ? 0 : 1; }' |
    "$(scripts/pick_compiler.sh)" -std=c++20 -O0 -x c++ - -S -o /dev/null
}
# Its CPU seconds where the budgets come from.
usual=3.3

# How many times as long as usual this machine takes now; never below 1.
measure() {
  cpu_seconds
  local started="$cpu" each compilers=()
  for ((each = 0; each < $(nproc) && each < 4; ++each)); do
    known_text &
    compilers+=("$!")
  done
  for each in "${compilers[@]}"; do wait "$each"; done  # a plain `wait` hides that one failed
  cpu_seconds
  slowness="$(awk -v cpu="$cpu" -v before="$started" -v usual="$usual" -v of="${#compilers[@]}" \
    'BEGIN {cpu = (cpu - before) / of; print (cpu > usual) ? cpu / usual : 1}')"
}
exceeds() {
  awk -v used="$used" -v budget="$budget" -v slow="$slowness" 'BEGIN {exit !(used > budget * slow)}'
}

slowness="${SWITCHYARD_STEP_SLOWNESS:-}"
if [ -z "$slowness" ]; then
  scripts/bootstrap.sh
  measure
fi
cpu_seconds
before="$cpu"
began="$SECONDS"
"$@"
cpu_seconds
used="$(awk -v used="$cpu" -v before="$before" 'BEGIN {printf "%.0f", used - before}')"
wall="$((SECONDS - began))"
# Others may have come to this machine since.
if exceeds && [ -z "${SWITCHYARD_STEP_SLOWNESS:-}" ]; then
  was="$slowness"
  measure
  slowness="$(printf '%s\n' "$was" "$slowness" | sort -g | tail -n 1)"
fi
LC_ALL=C printf 'step.sh: %s: %s s of CPU time, %s s; budget %s x %.2f\n' \
  "$*" "$used" "$wall" "$budget" "$slowness"
! exceeds
