#!/bin/bash
# The include arrows, checked: a file of a layer includes only its own layer and those named here.
#
#     include/switchyard  ←  shim, monitor, tools  ←  tests
#
# Inside a layer the files stand above each other: headers that include each other in a circle
# have no order.
#
# `examples` and `bench` are programs of other people, in spirit: they include nothing of ours, and
# the conformance test nothing but the CUDA headers. The simulator, bench/simulate, plays the
# monitor's own policies, and tests play it.
#
#   scripts/check_layers.sh [ROOT]    ROOT: another tree (the check's own test uses it)
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# layer: the layers that it may include
may_include() {
  case "$1" in
    include/switchyard) echo "include/switchyard" ;;
    shim | monitor | tools) echo "include/switchyard $1" ;;
    tests/conformance) echo "tests/conformance tests/fakecuda examples/kernels" ;;
    bench/simulate) echo "include/switchyard monitor bench/simulate" ;;
    tests) echo "include/switchyard shim monitor tools tests bench/simulate examples/demo examples/kernels" ;;
    examples) echo "examples" ;;
    bench) echo "bench" ;;
  esac
}

layer_of() {
  case "$1" in
    include/switchyard/*) echo include/switchyard ;;
    tests/conformance/*) echo tests/conformance ;;
    bench/simulate/*) echo bench/simulate ;;
    *) echo "${1%%/*}" ;;
  esac
}

# A quoted include names a file of ours: relative to the includer, to the root or to include/.
resolve() {
  local includer="$1" name="$2" candidate
  for candidate in "$(dirname "$includer")/$name" "$name" "include/$name" \
    "$(dirname "$(dirname "$includer")")/$name"; do
    if [ -f "$candidate" ]; then
      realpath --relative-to=. "$candidate"
      return
    fi
  done
}

bad=0
edges="$(mktemp)"
trap 'rm -f "$edges"' EXIT
while IFS=: read -r file line include; do
  name="$(sed -n 's/.*#[ ]*include[ ]*"\([^"]*\)".*/\1/p' <<< "$include")"
  target="$(resolve "$file" "$name")"
  [ -n "$target" ] || continue
  layer="$(layer_of "$file")"
  allowed=no
  for prefix in $(may_include "$layer"); do
    case "$target" in "$prefix"/*) allowed=yes ;; esac
  done
  if [ "$allowed" = no ]; then
    echo "$file:$line: $layer must not include $target (layers: CONTRIBUTING.md)" >&2
    bad=1
  fi
  echo "$file $target" >> "$edges"
done < <(grep -rnE '^[ ]*#[ ]*include[ ]*"' --include='*.h' --include='*.cpp' --include='*.c' \
  include shim monitor tools tests examples bench 2> /dev/null)
if ! circles="$(tsort "$edges" 2>&1 > /dev/null)"; then
  echo "these include each other in a circle:" >&2
  grep -v 'input contains a loop' <<< "$circles" | sed "s/^tsort: /  /" | sort -u >&2
  bad=1
fi
exit "$bad"
