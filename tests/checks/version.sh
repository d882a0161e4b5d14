#!/bin/bash
# One file names the version: the programs say its first line, and its other lines name commits.
#
#   version.sh SOURCE BUILD
set -euo pipefail
version="$(head -n 1 "$1/VERSION")"
[[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]
for program in switchyard switchyardd; do
  [ "$("$2/$program" --version)" = "$program $version" ]
done
if tail -n +2 "$1/VERSION" | grep -vE '^[0-9]+\.[0-9]+\.[0-9]+ [0-9a-f]{40}$'; then
  echo "VERSION: a line of a release is 'VERSION COMMIT'" >&2
  exit 1
fi
