#!/bin/bash
# clang-tidy, as .clang-tidy says, over what we ship: shim, monitor, tools and the demo. Every header
# of ours that these include is checked with them. The tests are held by the compiler's warnings, the
# sanitizers and the formatter: over them it costs ten minutes and has found tastes, not faults.
#
#   scripts/check_tidy.sh BUILD [JOBS] [FILE...]
#
# A file that passed is not looked at again until something it includes, or .clang-tidy, changes.
set -euo pipefail
cd "$(dirname "$0")/.."

build="$1"
jobs="${2:-2}"
shift $(($# < 2 ? $# : 2))
tidy=clang-tidy-14
passed="$build/tidy"
mkdir -p "$passed"

# One file: the key of its whole text, headers included, then the check.
check_one() {
  local file="$1" key command
  command="$(python3 - "$build/compile_commands.json" "$file" << 'PYTHON'
import json, os, shlex, sys
for entry in json.load(open(sys.argv[1])):
    if os.path.realpath(os.path.join(entry["directory"], entry["file"])) == os.path.realpath(sys.argv[2]):
        words = shlex.split(entry["command"])
        del words[words.index("-o"):words.index("-o") + 2]
        print("cd", shlex.quote(entry["directory"]), "&&", shlex.join(words), "-E")
        break
PYTHON
)"
  if [ -z "$command" ]; then
    echo "$file: not in $build/compile_commands.json; no target builds it, or $build is stale" >&2
    return 1
  fi
  key="$({ cat .clang-tidy shim/.clang-tidy && bash -c "$command" | sed '/^#/d'; } | sha256sum | cut -c1-32)"
  if [ -e "$passed/$key" ]; then return 0; fi
  if "$tidy" -p "$build" --quiet "$file" 2> "$passed/$key.err"; then
    rm "$passed/$key.err"
    touch "$passed/$key"
  else
    grep -vE '^[0-9]+ warnings? (generated|treated)' "$passed/$key.err" >&2 || true
    rm "$passed/$key.err"
    return 1
  fi
}
export -f check_one
export build tidy passed

if [ $# -gt 0 ]; then
  printf '%s\0' "$@"
else
  git ls-files -z 'shim/*.cpp' 'monitor/*.cpp' 'tools/*.cpp' 'examples/*.cpp'
fi | xargs -0 -r -n 1 -P "$jobs" bash -c 'set -euo pipefail; check_one "$1"' check_one
