"""A gate that stays closed for minutes in front of full queues, waits, copies, frees: no deadlock.

Nothing of the job may run meanwhile, its neighbour goes on, and afterwards every thread gets on and
every kernel has run exactly once. `--seconds 300` takes a longer --limit.
"""

import time

from rig.process import BENCH, python
from rig.report import Report

TITLE = "A gate closed for minutes"


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=200)


def state(job):
    return job.ask(state=True)


def run(rig, report: Report):
    job = rig.start_program("held", [python(), BENCH / "checks" / "held.py"])
    other = rig.start_program("other", [rig.program("kernel_rate"), 100, 10])
    for warm in (job, other):
        warm.ready()
    other.start()
    time.sleep(2)
    answer = rig.cli("pause", "held", "--json")
    time.sleep(1)
    first = state(job)
    seconds = rig.scaled(rig.options.seconds)
    rig.say(f"held for {seconds:.0f} s: {first}")
    begun = time.monotonic()
    looks = []
    while time.monotonic() - begun < seconds:
        time.sleep(min(10.0, seconds / 4))
        looks.append(state(job))
    held = time.monotonic() - begun
    rig.cli("resume", "held")
    time.sleep(2)
    after = state(job)
    ended = job.ask(end=True, timeout=100)
    done = other.stop()["steps"]
    report.keep(pause=answer.stdout, first=first, looks=looks, after=after, ended=ended,
                neighbour_steps=done)
    report.note("held for", f"{held:.0f} s", f"{len(looks)} looks")
    moved = max(look["kernels"] for look in looks) - first["kernels"]
    report.judge("kernels that ran meanwhile", str(moved), "none", moved == 0)
    stuck = [name for name, count in first["threads"].items()
             if after["threads"].get(name, 0) <= count]
    report.judge("threads that went on afterwards", ", ".join(stuck) or "all", "all", not stuck)
    report.judge("every kernel once, every copy right", "; ".join(ended["wrong"]) or
                 f"{ended['kernels']} of {ended['launched']}", "all",
                 not ended["wrong"] and not ended["stuck"]
                 and ended["kernels"] == ended["launched"])
    report.judge("the neighbour", f"{done / (held + 5):.0f} groups/s", "goes on", done > 50 * held)
