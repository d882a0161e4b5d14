#!/bin/bash
# Runs a step of .ci/run, and fails when it takes more CPU seconds than its budget. Then something has
# become slow: make it faster, or take something else out.
#
#   scripts/step.sh BUDGET COMMAND...
#
# CPU seconds hardly grow with what else runs on a machine. But they are longer on a slow machine,
# and on one whose cores are shared with others. So the budget grows with the time that a known text
# takes to compile, on up to four CPUs at once. SWITCHYARD_STEP_SLOWNESS=1 says that this
# machine is as fast as the one of the budgets.
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

slowness="${SWITCHYARD_STEP_SLOWNESS:-}"
if [ -z "$slowness" ]; then
  scripts/bootstrap.sh
  cpu_seconds
  before="$cpu"
  compilers=()
  for ((each = 0; each < $(nproc) && each < 4; ++each)); do
    known_text &
    compilers+=("$!")
  done
  for each in "${compilers[@]}"; do wait "$each"; done  # a plain `wait` hides that one failed
  cpu_seconds
  slowness="$(awk -v cpu="$cpu" -v before="$before" -v usual="$usual" -v of="${#compilers[@]}" \
    'BEGIN {cpu = (cpu - before) / of; print (cpu > usual) ? cpu / usual : 1}')"
fi
cpu_seconds
before="$cpu"
began="$SECONDS"
"$@"
cpu_seconds
awk -v used="$cpu" -v before="$before" -v budget="$budget" -v slow="$slowness" -v what="$*" \
  -v wall="$((SECONDS - began))" 'BEGIN {
  used -= before
  printf "step.sh: %s: %.0f s of CPU time, %d s; budget %s x %.2f\n", what, used, wall, budget, slow
  exit used > budget * slow
}'
