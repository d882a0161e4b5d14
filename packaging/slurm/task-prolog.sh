#!/bin/sh
# A TaskProlog for sites that can't have the plugin: slurm.conf names it, and slurmstepd reads what it
# prints. A job asks by variables, as in SWITCHYARD_MEMORY=20GiB sbatch train.sh, or by shards.
# Suspended jobs keep their GPU memory, for no agent runs here.
#
# Copy it, and change these: shards of each GPU as in gres.conf (0: they mean nothing), and the
# memory that they divide, in MiB.
shards_of_gpu=0
memory_of_gpu=0
library=/usr/lib/switchyard/libswitchyard.so
socket=/run/switchyard/monitor.sock

[ -n "$SLURM_JOB_ID" ] && [ -e "$library" ] || exit 0
shards="${SLURM_SHARDS_ON_NODE:-0}"
asked="$SWITCHYARD_MEMORY$SWITCHYARD_SHARE$SWITCHYARD_PRIORITY"
if [ "$shards_of_gpu" -gt 0 ] && [ "$shards" -gt 0 ]; then
  asked=shards
  gpus=$(printf '%s\n' "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | grep -c .)
  [ "$gpus" -gt 0 ] || gpus=1
  weight=$((shards / gpus))
  [ "$weight" -gt 0 ] || weight=1
  [ -n "$SWITCHYARD_SHARE" ] || echo "export SWITCHYARD_SHARE=$weight"
  memory=$((memory_of_gpu * shards / (shards_of_gpu * gpus)))
  [ -n "$SWITCHYARD_MEMORY" ] || [ "$memory" = 0 ] || echo "export SWITCHYARD_MEMORY=${memory}MiB"
fi
[ -n "$asked" ] || exit 0
echo "export SWITCHYARD_JOB=slurm-$SLURM_JOB_ID"
echo "export SWITCHYARD_NAME=slurm-$SLURM_JOB_ID"
echo "export SWITCHYARD_SOCKET=$socket"
echo "export SWITCHYARD_REQUIRE=1"
case "$LD_PRELOAD" in
  *"$library"*) ;;
  *) echo "export LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$library" ;;
esac
