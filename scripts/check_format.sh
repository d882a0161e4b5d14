#!/bin/bash
# Fails, naming files and lines, when a source is not as .clang-format says. --fix rewrites instead.
# One version of the formatter for all: others break lines in other places.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run --Werror)
if [ "${1:-}" = --fix ]; then mode=(-i); fi
sources() {
  git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.c' |
    while IFS= read -r -d '' file; do if [ -f "$file" ]; then printf '%s\0' "$file"; fi; done
}
sources | xargs -0 -r -n 16 -P 2 clang-format-14 --style=file "${mode[@]}"

# The formatter leaves comments alone: it would take the rows of a table for one sentence.
wide="$(sources | { xargs -0 -r grep -nHE '^ *//.{99,}' || true; })"
if [ -n "$wide" ]; then
  printf '%s\ncheck_format: comments of more than 100 columns\n' "$wide" >&2
  exit 1
fi
