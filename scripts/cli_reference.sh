#!/bin/bash
# Writes docs/reference/cli.md from what --help says.
#
#   scripts/cli_reference.sh BUILD            write it
#   scripts/cli_reference.sh BUILD --check    end with 1 if the page does not say what --help says
#
# The check ignores case and blanks: versions of CLI11 set headings and columns differently.
set -euo pipefail
build="$(realpath "$1")"
page="${CLI_REFERENCE_PAGE:-$(dirname "$0")/../docs/reference/cli.md}"

commands() {
  "$build/switchyard" --help | awk 'tolower($0) ~ /^subcommands:/ {found = 1; next}
    /^[^ ]/ {found = 0} found && /^  [a-z]/ {print $1}'
}

help_of() {
  printf '\n## %s\n\n```text\n' "$*"
  "$build/$1" "${@:2}" --help | sed "s|$build/||g; s/[ ]*\$//" | awk '
    NF {while (blank > 0) {if (said) print ""; blank--}; print; said = 1; next} {blank++}'
  printf '```\n'
}

whole() {
  cat << 'HEAD'
# Command line

This page is made from `--help` by `scripts/cli_reference.sh`; a test compares it. See also the
[environment variables](environment.md), the [exit codes](exit-codes.md) and the
[JSON listings](json.md).
HEAD
  help_of switchyard
  local command
  for command in $(commands); do help_of switchyard "$command"; done
  help_of switchyardd
  help_of switchyard-entrypoint
}

plain() { tr '[:upper:]' '[:lower:]' | tr -s '[:space:]' '\n'; }

if [ "${2:-}" != --check ]; then
  whole > "$page"
  exit 0
fi
[ -n "$(commands)" ] || { echo "cli_reference: switchyard --help lists no command" >&2; exit 1; }
if ! diff <(plain < "$page") <(whole | plain) > /dev/null; then
  diff -u "$page" <(whole) >&2 || true
  echo "cli_reference: $page is not what --help says: run scripts/cli_reference.sh BUILD" >&2
  exit 1
fi
