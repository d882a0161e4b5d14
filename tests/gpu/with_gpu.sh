#!/bin/bash
# Runs a test where there is a real GPU. Else: 77 (skipped), or 1 when SWITCHYARD_REQUIRE_GPU=1.
#
#   with_gpu.sh DEMO TEST [ARGUMENTS]
set -euo pipefail
demo="$1"
shift
if found="$("$demo" --worker probe 2>&1)" && [[ "$found" != *[Ss]imulated* ]]; then
  echo "on: ${found#ready }"
  exec "$@"
fi
echo "no real GPU: $found"
if [ "${SWITCHYARD_REQUIRE_GPU:-}" = 1 ]; then exit 1; fi
exit 77
