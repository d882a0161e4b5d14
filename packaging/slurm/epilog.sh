#!/bin/sh
# An Epilog for slurm.conf: writes the bill of a job into the system's log. There is a line for each
# of its jobs of Switchyard on this node, mostly one.
#
# A bill is whole some seconds after the last process, and Slurm is not to wait for it. Slurm kills
# what an Epilog leaves in its session. So it waits until the rest has a session of its own.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

[ -n "$SLURM_JOB_ID" ] || exit 0
# shellcheck disable=SC2016
: "$(setsid sh -c '
  exec > /dev/null
  switchyard report --slurm-job "$1" |
    while read -r bill; do logger -t switchyard "slurm job $1: $bill"; done
' sh "$SLURM_JOB_ID" < /dev/null 2> /dev/null &)"
