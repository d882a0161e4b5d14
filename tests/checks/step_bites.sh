#!/bin/bash
# A step fails when its command does, and when it takes more CPU time than its budget, also in a child.
set -euo pipefail
step="$1"
export SWITCHYARD_STEP_SLOWNESS=1

burn='for ((i = 0; i < 300000; ++i)); do :; done'  # half a second or more
"$step" 100 true
"$step" 0.1 sleep 0.5
for command in false "exit 3"; do
  if "$step" 100 bash -c "$command"; then echo "a failure was lost: $command"; exit 1; fi
done
if "$step" 0.1 bash -c "bash -c '$burn'; true"; then echo "a step above its budget passed"; exit 1; fi
