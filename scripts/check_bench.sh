#!/bin/bash
# The bench needs a GPU to measure, but none to be checked. Its programs compile, and every row says
# what it measures and which options it has.
set -euo pipefail
cd "$(dirname "$0")/.."

export PYTHONDONTWRITEBYTECODE=1
failed=0
while read -r file; do
  python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$file" || failed=1
done < <(git ls-files '*.py')

rows="$(cd bench && python3 -c 'import run; print(*run.ROWS, sep="\n")')"
for row in $rows; do
  if ! said="$(python3 bench/run.py "$row" --help 2>&1)"; then
    printf 'check_bench: run.py %s --help:\n%s\n' "$row" "$said" >&2
    failed=1
  fi
done
exit "$failed"
