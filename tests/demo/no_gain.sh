#!/bin/bash
# With the kill switch on, the demo must measure no gain: so what it shows without is not an
# artefact of how it measures. And it leaves nothing behind.
set -uo pipefail

left() { find /tmp -maxdepth 1 \( -name 'switchyard-demo-*' -o -name 'fakecuda-*' \) | sort; }

left > before
SWITCHYARD_DISABLE=1 "$1" --brief > report
status=$?
cat report
[ "$status" -eq 1 ] || { echo "the demo ended with $status, expected 1 (no gain)"; exit 1; }
grep -q '^No gain from Switchyard: ' report || { echo "it measured nothing"; exit 1; }
left | comm -13 before - | grep . && { echo "the demo left the above in /tmp"; exit 1; }
exit 0
