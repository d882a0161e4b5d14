#!/bin/sh
# A service at high priority beside a training at low priority, on one GPU, in PyTorch:
#
#   examples/serve_beside_training.sh [seconds]
#
# First by the driver's own scheduling, then under Switchyard: compare the service's p99. Needs a
# GPU, PyTorch, and a build (make) or an installed switchyard.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-15}
PATH=$here/../build:$PATH
command -v switchyard >/dev/null || { echo "$0: no switchyard: run make first" >&2; exit 1; }

both() { # both TITLE RUN...: training and service, each started by RUN
  echo "== $1"
  training=$2 service=$3
  $training python3 "$here/train_pytorch.py" --seconds $((seconds + 10)) >/dev/null &
  train=$!
  trap 'kill $train 2>/dev/null || true' EXIT INT TERM
  sleep 8 # the training warms up
  status=0
  $service python3 "$here/serve_pytorch.py" --seconds "$seconds" || status=$?
  kill $train 2>/dev/null || true
  wait $train 2>/dev/null || true
  trap - EXIT INT TERM
  return $status
}

both "the driver's default" "" ""
both "Switchyard" "switchyard run --name train-low --priority low --" \
  "switchyard run --name serve-high --priority high --"
