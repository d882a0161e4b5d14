#!/bin/bash
# Fails, naming files and lines, when a source is not as .clang-format says. --fix rewrites instead.
# One version of the formatter for all: others break lines in other places.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run --Werror)
if [ "${1:-}" = --fix ]; then mode=(-i); fi
git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.c' |
  while IFS= read -r -d '' file; do if [ -f "$file" ]; then printf '%s\0' "$file"; fi; done |
  xargs -0 -r -n 16 -P 2 clang-format-14 --style=file "${mode[@]}"
