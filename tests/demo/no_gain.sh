#!/bin/bash
# With the kill switch on, the demo must measure no gain: so what it shows without is not an
# artefact of how it measures.
set -uo pipefail

SWITCHYARD_DISABLE=1 "$1" > report
status=$?
cat report
[ "$status" -eq 1 ] || { echo "the demo ended with $status, expected 1 (no gain)"; exit 1; }
grep -q '^No gain from Switchyard: ' report || { echo "it measured nothing"; exit 1; }
