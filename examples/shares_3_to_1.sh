#!/bin/sh
# Two trainings that share one GPU 3 : 1, and then, without a restart, 1 : 3:
#
#   examples/shares_3_to_1.sh
#
# Their lines are marked A and B: compare the steps per second, and see `switchyard ps` between
# them. Needs a GPU, PyTorch, and a build (make) or an installed switchyard.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PATH=$here/../build:$PATH
command -v switchyard >/dev/null || { echo "$0: no switchyard: run make first" >&2; exit 1; }

train() { # train NAME SHARE
  switchyard run --name "$1" --share "$2" -- \
    python3 "$here/train_pytorch.py" --seconds 30 | sed "s/^/$1  /"
}

train A 3 &
train B 1 &
sleep 15
switchyard ps
echo "== now 1 : 3"
switchyard set A --share 1
switchyard set B --share 3
sleep 3
switchyard ps
wait
