#!/bin/sh
# The rows of a machine of several GPUs, one after the other, on all of them:
#
#   bench/machine.sh [N]    on the first N of them. About 40 minutes.
#
# The row `machine` needs libnccl.so.2 alone, the others need PyTorch. Exit status: that of the worst.
set -u
cd "$(dirname "$0")/.."
gpus="${1:-$(nvidia-smi --list-gpus | wc -l)}"
out="${SWITCHYARD_BENCH_OUT:-build/bench-results}"
worst=0
row() {
  echo "== $*"
  python3 bench/run.py "$@" --out "$out"
  status=$?
  [ "$status" -gt "$worst" ] && worst=$status
}
row machine --gpus "$gpus" --limit 1500
row gang --ranks "$gpus" --times 20 --limit 600
row gang --ranks "$gpus" --times 20 --fsdp --steps 1200 --limit 600
row ddp_service --ranks "$gpus" --services "$gpus" --limit 600
row ddp_shares --ranks "$gpus" --limit 600
# Each of both has 60 % of the capacity, and is bound by the GPU.
row gangs --ranks "$gpus" --oversubscribe --gib 8 --capacity 15GiB --width 2048 --layers 12 \
  --batch 2048 --steps 1500 --limit 900
row gangs --ranks "$gpus" --seconds 180 --steps 6000 --limit 900
exit "$worst"
