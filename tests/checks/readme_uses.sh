#!/bin/bash
# Runs the commands of the README as they stand there, on the simulated GPU: those
# with an output below them. The output on settings and pauses must be the README's, without its
# numbers. Of a table the heading and the names must be, of `why` the
# first word.
#
# The block that makes and installs packages is run by scripts/check_packages.sh.
#
#   readme_uses.sh SOURCE BUILD
set -euo pipefail
readme="$(realpath "$1")/README.md"
build="$(realpath "$2")"
folder="$(mktemp -d)"
export SWITCHYARD_SOCKET="$folder/m.sock" FAKECUDA_STATE="$folder/gpu" LC_ALL=C.UTF-8
export XDG_STATE_HOME="$folder/state"
set -m  # each job in a group of its own
# shellcheck disable=SC2046
end() { kill -- $(jobs -p | sed 's/^/-/') 2> /dev/null || true; "$build/switchyard" stop --force > /dev/null 2>&1 || true; rm -rf "$folder"; }
trap end EXIT
ln -s "$build" "$folder/build"
cd "$folder"
eval "$(sed -n 's/^To run them: `\(export .*\)`$/\1/p' "$readme")"
[ "${PWD##*/}" = examples ] || { echo "readme_uses: the README does not say where they are" >&2; exit 1; }

# Each command on a line, and below it what it should say, with a bar before it.
awk '/^```/ {inside = !inside; shown = 0; next} inside && $1 == "$" {shown = 1}
  inside && shown {print ($1 == "$" ? substr($0, 3) : "|" $0)}' "$readme" > "$folder/uses"
[ "$(grep -cv '^|' "$folder/uses")" -ge 12 ] || { echo "readme_uses: the README has too few uses" >&2; exit 1; }

# The job is listed, or it has not come within a minute.
comes() {
  local name; name="$(sed -n 's/.*--name \([a-z]*\).*/\1/p' <<< "$1")"
  for _ in $(seq 600); do
    switchyard ps --json | grep -q "\"name\": \"$name\"" &&
      switchyard ps | grep -q "^$name .*[0-9][MG]/" && return 0
    sleep 0.1
  done
  echo "readme_uses: job $name did not come: $1" >&2; exit 1
}

plain() { sed -E 's/[0-9]+(\.[0-9]+)?/N/g; s/ +/ /g; s/[[:blank:]]+$//'; }
compare() {
  case "$1" in
    *"switchyard why"*) diff <(head -1 "$folder/said" | cut -d " " -f 1) <(head -1 "$folder/shown" | cut -d " " -f 1) ;;
    *"--state"*) # on a busy machine another job may be idle as well
      diff <(head -1 "$folder/said" | plain) <(head -1 "$folder/shown" | plain) &&
        [ -z "$(comm -13 <(awk 'NR > 1 {print $1}' "$folder/said" | plain | sort) \
          <(awk 'NR > 1 {print $1}' "$folder/shown" | plain | sort))" ] ;;
    *"switchyard report"*)
      diff <(head -2 "$folder/said" | plain) <(head -2 "$folder/shown" | plain) &&
        diff <(awk 'NR > 2 {print $1}' "$folder/said" | plain | sort) \
          <(awk 'NR > 2 {print $1}' "$folder/shown" | plain | sort) ;;
    *"switchyard ps"*)
      diff <(head -1 "$folder/said" | plain) <(head -1 "$folder/shown" | plain) &&
        diff <(awk 'NR > 1 {print $1}' "$folder/said" | plain | sort) \
          <(awk 'NR > 1 {print $1}' "$folder/shown" | plain | sort) ;;
    *) diff <(plain < "$folder/said") <(plain < "$folder/shown") ;;
  esac || { echo "readme_uses: '$1' says the left, the README the right" >&2; exit 1; }
}

exec 3< "$folder/uses"
read -r command <&3
while [ -n "$command" ]; do
  : > "$folder/shown"
  next=""
  while IFS= read -r line <&3; do
    if [ "${line:0:1}" != "|" ]; then next="$line"; break; fi
    printf '%s\n' "${line:1}" >> "$folder/shown"
  done
  case "$command" in
    *"&") eval "${command%&}" > /dev/null 2>&1 & comes "$command" ;;
    *)
      eval "$command" > "$folder/said" 2>&1 || { echo "readme_uses: failed: $command" >&2; cat "$folder/said" >&2; exit 1; }
      compare "$command" ;;
  esac
  command="$next"
done
