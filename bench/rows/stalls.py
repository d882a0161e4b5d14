"""A rank that is stopped, one that leaves out a collective, one that is killed: how soon is it named?

`ps` is asked until it names the rank that the other waits for. A pause by Switchyard must not be
taken for a stall. Needs two GPUs, or --one-gpu.
"""

import os
import signal
import time

from rig import ranks
from rig.process import BENCH, python
from rig.report import Report

TITLE = "Which rank do the others wait for?"
NAMED_S = 5
PAUSED_S = 8  # longer than the monitor waits before it names a rank


def arguments(parser):
    ranks.arguments(parser)


def start(rig, name):
    script = [python(), BENCH / "checks" / "late_ranks.py"]
    job = rig.start_program(name, [*script, *(["--one-gpu"] if rig.options.one_gpu else [])])
    return job, job.ready(120).about["ranks"]


def stalls(rig, name):
    return rig.job(name)["stalls"]


def named(rig, name, pid, limit=15):
    """(seconds until `ps` names the process, what it says), or (None, all that it names)"""
    begun = time.monotonic()
    said = []
    while time.monotonic() - begun < limit:
        said = stalls(rig, name)
        if any(stall["pid"] == pid for stall in said):
            return time.monotonic() - begun, said
        time.sleep(0.1)
    return None, said


def judge(report, what, seconds, said):
    report.judge(f"{what}: named after, s", "never" if seconds is None else f"{seconds:.1f}",
                 f"at most {NAMED_S}", seconds is not None and seconds <= NAMED_S)
    for stall in said:
        report.note(f"  rank {stall['rank']}", f"{stall['reason']}, {stall['does']}",
                    f"{stall['kind']} number {stall['operation']}, {stall['bytes']} bytes")


def by_signal(rig, report, name, what, number):
    """One job for each: what follows a left-out collective or a death can't be mended."""
    job, pids = start(rig, name)
    os.kill(pids[1], number)
    seconds, said = named(rig, name, pids[1])
    judge(report, what, seconds, said)
    return job, pids, {"what": what, "seconds": seconds, "said": said}


def paused(rig, report, name):
    rig.cli("pause", name)
    until = time.monotonic() + PAUSED_S
    false = []
    while time.monotonic() < until:
        false += stalls(rig, name)
        time.sleep(0.2)
    rig.cli("resume", name)
    time.sleep(1)
    false += stalls(rig, name)
    report.judge(f"named during a pause of {PAUSED_S} s and after it", str(len(false)), "0", not false)
    return false


def run(rig, report: Report):
    ranks.prepare(rig)
    job, pids, stopped = by_signal(rig, report, "stopped", "stopped by SIGSTOP", signal.SIGSTOP)
    os.kill(pids[1], signal.SIGCONT)
    time.sleep(2)
    after = stalls(rig, "stopped")
    report.judge("  named 2 s after SIGCONT", str(len(after)), "0", not after)
    false = paused(rig, report, "stopped")
    job.end()
    found = [stopped]
    for name, what, number in (("skips", "leaves out a collective", signal.SIGUSR1),
                               ("killed", "killed", signal.SIGKILL)):
        job, _, how = by_signal(rig, report, name, what, number)
        found.append(how)
        job.end()
    report.keep(found=found, false=false)
